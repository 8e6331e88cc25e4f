#include "app/prepare/cache.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/file_lock.h"
#include "base/output_file.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::data {
namespace {

namespace fs = std::filesystem;

// Only the holder of the lock calls this, so every such directory belongs to a dead process.
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

TemporaryDirectory::TemporaryDirectory() : path_((fs::temp_directory_path() / "lmx-XXXXXX").string()) {
  if (!mkdtemp(path_.data())) throw RunError(str("[data] cannot create ", path_, ": ", std::strerror(errno)));
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string build_once(const std::string& parent, const std::string& name,
                       const std::function<void(const std::string&)>& build) {
  const fs::path done = fs::path(parent) / name;
  if (fs::exists(done)) return done.string();
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) throw RunError(str("[data] cannot create the cache directory ", parent, ": ", error.message()));
  FileLock lock(done.string() + ".lock", "[data] ");
  if (!lock.take()) {
    log_info(str("[data] another process is preparing ", done.string(), "; waiting for it"));
    lock.wait();
  }
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
