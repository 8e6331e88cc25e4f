#include "app/prepare/checksums.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/corpora/folders.h"
#include "base/files.h"
#include "base/output_file.h"
#include "lmx/error.h"
#include "lmx/log.h"

namespace lmx::data {

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

}  // namespace lmx::data
