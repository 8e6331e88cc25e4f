#include "app/prepare/cache.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/corpora/corpora.h"
#include "base/files.h"
#include "base/output_file.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::app {
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

using Json = nlohmann::ordered_json;

void verify_checksums(const Corpus* corpus, const std::string& directory, const std::vector<SourceFile>& files,
                      const std::string& cache_dir) {
  if (!corpus) return;
  const std::string record = str(cache_dir, "/checksums/", corpus->name, ".json");
  std::error_code ignored;
  const bool known = !corpus->sha256.empty(), recorded = !known && std::filesystem::exists(record, ignored);
  Json sums = Json::object();
  if (recorded) sums = Json::parse(read_file(record), nullptr, false);
  for (const auto& [file, sum] : corpus->sha256) sums[file] = sum;
  if (!sums.is_object()) throw UserError(str("[data] ", record, " is damaged; delete it"));
  for (const SourceFile& file : files) {
    const std::string name = std::filesystem::path(file.path).lexically_relative(directory).generic_string();
    progress_line(str("[data] checksum of ", name));
    const std::string sum = sha256_of_file(file.path);
    if (!known && !recorded) sums[name] = sum;
    const std::string expected = sums.contains(name) && sums[name].is_string() ? sums[name].get<std::string>() : "none";
    if (sum == expected) continue;
    throw UserError(str("[data] ", file.path, " has SHA-256 ", sum, ", but ", known ? "the registry" : record, " says ",
                        expected, " for corpus '", corpus->name, "'; ", known ? "" : "delete that record, or ",
                        "name changed text in data.files instead"));
  }
  progress_line("");
  if (known || recorded) return;
  std::filesystem::create_directories(cache_dir + "/checksums", ignored);
  write_file(record, sums.dump(1) + "\n");
}

std::string cache_directory(const std::string& configured) {
  return configured.empty() ? default_cache_directory() : configured;
}

int preparing_threads(int64_t configured) {
  const auto cores = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  return static_cast<int>(configured > 0 ? configured : cores);
}

}  // namespace lmx::app
