#include "app/corpora/corpora.h"

#include <cstdlib>

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

}  // namespace lmx::data
