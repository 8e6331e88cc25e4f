#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "lmx/error.h"

namespace lmx {

FileLock::FileLock(const std::string& path, const std::string& prefix) : path_(path), prefix_(prefix) {
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw RunError(str(prefix, "cannot write ", path, ": ", std::strerror(errno)));
}

FileLock::~FileLock() {
  close(descriptor_);
}

bool FileLock::lock(int operation) {
  while (flock(descriptor_, operation) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) throw RunError(str(prefix_, "cannot lock ", path_, ": ", std::strerror(errno)));
  }
  return true;
}

bool FileLock::take() {
  return lock(LOCK_EX | LOCK_NB);
}

bool FileLock::take_soon() {
  using namespace std::chrono_literals;
  const auto end = std::chrono::steady_clock::now() + 2s;
  while (!take()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

void FileLock::wait() {
  lock(LOCK_EX);
}

bool FileLock::is_held(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  const bool locked = flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(file);
  return locked;
}

}  // namespace lmx
