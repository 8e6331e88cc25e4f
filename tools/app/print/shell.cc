#include "app/print/shell.h"

#include <cstdlib>

namespace lmx_cli {

std::string command_name() {
  const char* name = std::getenv("LMX_COMMAND");
  return name && *name ? name : "lmx";
}

std::string shell_quoted(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace lmx_cli
