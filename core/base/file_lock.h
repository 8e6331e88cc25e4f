// A lock that one process can hold at a time.
#pragma once

#include <string>

namespace lmx {

// An exclusive lock of a file, which is created if it is missing. The kernel releases the lock when its holder ends.
class FileLock {
 public:
  // Opens the file without locking it. `prefix` is the beginning of error messages: "[run] ". RunError if the file
  // cannot be written or locked.
  FileLock(const std::string& path, const std::string& prefix);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool take();  // false: another FileLock holds it, or is_held() tests it at this moment
  // Like take(), but waits up to two seconds for another holder to end. A killed process exists until the kernel has
  // ended it, and a child process that it was starting shares its lock until it executes a program.
  bool take_soon();
  void wait();  // waits until it holds the lock

  static bool is_held(const std::string& path);

 private:
  bool lock(int operation);  // false: it would have to wait

  std::string path_, prefix_;
  int descriptor_ = -1;
};

}  // namespace lmx
