#include "app/print/words.h"

#include <cstdlib>

namespace lmx::app {

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

namespace {

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '|' ? std::string("\\|") : std::string(1, c == '\n' ? ' ' : c);
  return safe;
}

}  // namespace

std::string markdown_table(const std::vector<std::vector<std::string>>& rows, const std::string& rule) {
  std::string out;
  for (size_t i = 0; i < rows.size(); ++i) {
    out += "|";
    for (const std::string& cell : rows[i]) out += " " + escaped(cell) + " |";
    out += "\n";
    if (i > 0) continue;
    out += "|";
    for (size_t c = 0; c < rows[0].size(); ++c) out += rule + "|";
    out += "\n";
  }
  return out;
}

}  // namespace lmx::app
