#include "paths.h"

#include <unistd.h>

#include <cstdlib>
#include <sstream>

namespace lmx_test {

std::string source_path(std::string_view path) {
  return std::string(LMX_SOURCE_DIR).append(path);
}
std::string build_path(std::string_view path) {
  const char* moved = std::getenv("LMX_TEST_BUILD");
  return std::string(moved ? moved : LMX_BINARY_DIR).append(path);
}
std::string missing_path() {
  return source_path("/LICENSE/missing");
}
std::string on_path(const std::string& name) {
  std::istringstream folders(std::getenv("PATH") ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
  return "";
}

}  // namespace lmx_test
