#include "app/corpora/sources.h"

#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "app/corpora/corpora.h"
#include "app/corpora/formats.h"
#include "base/files.h"
#include "lmx/error.h"

namespace lmx::data {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Returns $variable/lmx, otherwise ~/fallback/lmx.
std::string user_folder(const char* variable, const char* fallback) {
  const std::string base = environment(variable);
  if (!base.empty() && base[0] == '/') return base + "/lmx";
  const std::string home = environment("HOME");
  if (home.empty())
    throw UserError(str("[data] neither ", variable, " nor HOME is set; set LMX_CACHE_DIR and LMX_DATA_DIR"));
  return str(home, "/", fallback, "/lmx");
}

}  // namespace

std::string default_cache_directory() {
  const std::string own = environment("LMX_CACHE_DIR");
  return own.empty() ? user_folder("XDG_CACHE_HOME", ".cache") : own;
}

std::vector<std::string> data_directories() {
  const std::string own = environment("LMX_DATA_DIR");
  if (own.empty()) return {user_folder("XDG_DATA_HOME", ".local/share")};
  std::vector<std::string> folders;
  for (size_t at = 0; at <= own.size();) {
    const size_t end = std::min(own.find(':', at), own.size());
    if (end > at) folders.push_back(own.substr(at, end - at));
    at = end + 1;
  }
  return folders;
}

namespace {

namespace fs = std::filesystem;

bool has_end(std::string_view name, std::initializer_list<const char*> ends) {
  for (const std::string_view packed : {".gz", ".zst"})
    if (name.ends_with(packed)) name.remove_suffix(packed.size());
  return std::any_of(ends.begin(), ends.end(), [&](const char* end) { return name.ends_with(end); });
}

bool is_text_name(const std::string& name, bool fields) {
  return has_end(name, {".txt", ".text"}) || (fields && format_of(name) != Format::lines);
}

std::vector<std::string> text_files_below(const std::string& directory, bool fields) {
  std::vector<std::string> paths;
  int64_t others = 0;
  std::error_code error;
  fs::recursive_directory_iterator it(directory, fs::directory_options::follow_directory_symlink, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (it->path().filename().string().starts_with(".")) {
      if (it->is_directory()) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file()) continue;
    if (is_text_name(it->path().filename().string(), fields))
      paths.push_back(it->path().string());
    else
      ++others;
  }
  if (error) throw UserError(str("[data] cannot list ", directory, ": ", error.message()));
  if (paths.empty()) {
    throw UserError(str("[data] directory ", directory, " holds no text file (.txt, .text, ",
                        fields ? ".csv, .jsonl, .ndjson, " : "", "also with .gz and .zst); ", others,
                        " other files there; name them in `files` to read them as text"));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      if (!fs::is_directory(found.gl_pathv[i])) paths.emplace_back(found.gl_pathv[i]);
    }
  }
  globfree(&found);
  if (paths.empty())
    throw UserError(str("[data] no file matches ", pattern, " (looked from ", fs::current_path().string(), ")"));
  std::sort(paths.begin(), paths.end());
  return paths;
}

struct stat look_at(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) throw UserError(str("[data] cannot read ", path, ": ", std::strerror(errno)));
  return info;
}

int64_t modified_ns(const struct stat& info) {
  return info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

std::vector<std::string> find_paths(const std::string& pattern, bool fields) {
  std::error_code error;
  const fs::file_status status = fs::status(pattern, error);
  if (fs::is_directory(status)) return text_files_below(pattern, fields);
  if (fs::exists(status)) return {pattern};  // a file with exactly this name has priority over a pattern
  if (pattern.find_first_of("*?[") != std::string::npos) return matches(pattern);
  throw UserError(str("[data] no such file or directory: ", pattern,
                      pattern.starts_with("/") ? "" : str(" (looked from ", fs::current_path().string(), ")")));
}

Format format_of(const std::string& name) {
  if (has_end(name, {".csv"})) return Format::csv;
  return has_end(name, {".jsonl", ".ndjson"}) ? Format::jsonl : Format::lines;
}

std::vector<SourceFile> find_sources(const std::vector<std::string>& patterns, Split split, const std::string& field) {
  std::vector<SourceFile> files;
  std::set<std::string> seen;
  for (const std::string& pattern : patterns) {
    for (const std::string& path : find_paths(pattern, !field.empty())) {
      const struct stat info = look_at(path);
      if (!S_ISREG(info.st_mode)) throw UserError(str("[data] ", path, " is not a regular file"));
      if (access(path.c_str(), R_OK) != 0)
        throw UserError(str("[data] cannot read ", path, ": ", std::strerror(errno)));
      if (info.st_size == 0) throw UserError(str("[data] ", path, " is empty"));
      if (!seen.insert(fs::canonical(path).string()).second) {
        throw UserError(str("[data] ", path, " is named twice in `files` (again by ", pattern, ")"));
      }
      files.push_back({path, split, info.st_size, modified_ns(info), ""});
      if (field.empty()) continue;
      SourceFile& file = files.back();
      file.format = format_of(path);
      file.field = field;
      if (file.format == Format::csv) file.column = csv_column(path, field);
    }
  }
  return files;
}

void hash_sources(std::vector<SourceFile>& files) {
  std::string buffer(1 << 20, '\0');
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  for (SourceFile& file : files) {
    XXH3_128bits_reset(state.get());
    InputFile in(file.path, Content::bytes);
    while (const size_t n = in.read(buffer.data(), buffer.size())) XXH3_128bits_update(state.get(), buffer.data(), n);
    const XXH128_hash_t h = XXH3_128bits_digest(state.get());
    char text[33];
    std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(h.high64),
                  static_cast<unsigned long long>(h.low64));
    file.hash = text;
  }
}

void check_unchanged(const std::vector<SourceFile>& files) {
  for (const SourceFile& file : files) {
    struct stat info {};
    if (stat(file.path.c_str(), &info) != 0 || info.st_size != file.bytes || modified_ns(info) != file.modified_ns) {
      throw RunError(str("[data] ", file.path, " changed while it was being prepared; try again"));
    }
  }
}

}  // namespace lmx::data
