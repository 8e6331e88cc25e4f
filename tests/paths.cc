#include "paths.h"

#include <cstdlib>

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

}  // namespace lmx_test
