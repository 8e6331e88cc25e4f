#include "data/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "data/files.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::data {
namespace {

namespace fs = std::filesystem;

// An exclusive lock, held until destruction or the death of the process.
class Lock {
 public:
  Lock(const std::string& path, const std::string& what) {
    descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ < 0) throw RunError(str("[data] cannot create ", path, ": ", std::strerror(errno)));
    if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
    log_info(str("[data] another process is preparing ", what, "; waiting for it"));
    while (flock(descriptor_, LOCK_EX) != 0) {
      if (errno == EINTR) continue;
      const std::string why = std::strerror(errno);
      close(descriptor_);
      throw RunError(str("[data] cannot lock ", path, ": ", why));
    }
  }
  ~Lock() { close(descriptor_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int descriptor_ = -1;
};

// Only the holder of the lock calls this, so that every such directory is a dead process's.
void remove_leftovers(const fs::path& parent, const std::string& prefix) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    if (entry.path().filename().string().starts_with(prefix)) fs::remove_all(entry.path(), ignored);
  }
}

struct RemoveOnExit {
  fs::path path;
  ~RemoveOnExit() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
};

}  // namespace

std::string build_once(const std::string& parent, const std::string& name,
                       const std::function<void(const std::string&)>& build) {
  const fs::path done = fs::path(parent) / name;
  if (fs::exists(done)) return done.string();
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) throw RunError(str("[data] cannot create the cache directory ", parent, ": ", error.message()));
  const Lock lock(done.string() + ".lock", done.string());
  if (fs::exists(done)) return done.string();  // built while this call waited
  remove_leftovers(parent, name + ".tmp-");
  RemoveOnExit temporary{str(done.string(), ".tmp-", getpid())};
  fs::create_directory(temporary.path, error);
  if (error) throw RunError(str("[data] cannot create ", temporary.path.string(), ": ", error.message()));
  build(temporary.path.string());
  sync_directory(temporary.path.string());
  fs::rename(temporary.path, done, error);
  if (error) throw RunError(str("[data] cannot rename ", temporary.path.string(), ": ", error.message()));
  temporary.path.clear();
  sync_directory(parent);
  return done.string();
}

}  // namespace lmx::data
