// One process at a time.
#pragma once

#include <string>

namespace lmx {

// An exclusive lock of a file, which is made where it is missing. The kernel takes it back when its holder ends.
class FileLock {
 public:
  // Opens the file alone. `prefix` starts the errors: "[run] ". RunError where the file cannot be written or locked.
  FileLock(const std::string& path, const std::string& prefix);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool take();  // false: another FileLock holds it, or is_held() looks at this moment
  // As take(), but another holder has two seconds to end: one that was killed is there until the kernel has ended it,
  // and a child that it was starting shares its lock until it executes.
  bool take_soon();
  void wait();  // until it holds the lock

  static bool is_held(const std::string& path);

 private:
  bool lock(int operation);  // false: it would have to wait

  std::string path_, prefix_;
  int descriptor_ = -1;
};

}  // namespace lmx
