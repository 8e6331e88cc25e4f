// One process at a time.
#pragma once

#include <string>

#include "lmx/api.h"

namespace lmx {

// An exclusive lock of a file, which is made where it is missing. The kernel takes it back when its holder ends.
class LMX_API FileLock {
 public:
  // Opens the file alone. `prefix` starts the errors: "[run] ". RunError where the file cannot be written or locked.
  FileLock(const std::string& path, const std::string& prefix);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool take();  // false: another process holds it
  // As take(), but another holder has two seconds to end: one that was killed is there until the kernel has ended it,
  // and so is a child that it was starting.
  bool take_soon();
  void wait();  // until no other process holds it

 private:
  std::string path_, prefix_;
  int descriptor_ = -1;
};

// True while a process holds the lock of the file.
LMX_API bool is_locked(const std::string& path);

}  // namespace lmx
