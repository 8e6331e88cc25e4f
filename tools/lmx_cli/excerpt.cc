#include "excerpt.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <vector>

#include "lmx/error.h"

namespace lmx_cli {
namespace {

// What stands in front of the caret: as wide as the text before it, tabs kept.
std::string padding(const std::string& line, size_t column) {
  std::string pad;
  size_t seen = 1;  // columns count characters
  for (size_t i = 0; i < line.size() && seen < column; ++i) {
    if ((line[i] & 0xC0) == 0x80) continue;
    pad += line[i] == '\t' ? '\t' : ' ';
    ++seen;
  }
  return pad;
}

// A long line around its column, so that the caret is in sight.
void shorten(std::string& line, size_t& column) {
  constexpr size_t kWidth = 110;
  if (line.size() <= kWidth) return;
  size_t begin = column > kWidth / 2 ? column - kWidth / 2 : 0;
  while (begin > 0 && (line[begin] & 0xC0) == 0x80) --begin;
  size_t end = std::min(line.size(), begin + kWidth);
  while (end < line.size() && (line[end] & 0xC0) == 0x80) ++end;
  const auto cut = static_cast<size_t>(std::count_if(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(begin),
                                                     [](char c) { return (c & 0xC0) != 0x80; }));
  const std::string head = begin > 0 ? "..." : "";
  line = head + line.substr(begin, end - begin) + (end < line.size() ? "..." : "");
  column = column - cut + head.size();
}

std::string line_of(const std::string& file, size_t number) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return "";
  std::ifstream in(file);
  std::string line;
  for (size_t i = 0; i < number; ++i)
    if (!std::getline(in, line)) return "";
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

std::string excerpt(std::string line, size_t column, const std::string& number) {
  shorten(line, column);
  const std::string margin = std::string(number.size(), ' ');
  return lmx::str("\n  ", number, " | ", line, "\n  ", margin, " | ", padding(line, column), "^");
}

std::string excerpt_of(const std::string& message) {
  static const std::regex place(R"(([^\s:'"]+):(\d{1,6}):(\d{1,6}): )"),
      typed(R"(override '(.*)': column (\d{1,6}): )");
  std::smatch m, of_override;
  const bool placed = std::regex_search(message, m, place);
  // An override that stands in a file is told with the file's place in front.
  if (std::regex_search(message, of_override, typed) && (!placed || of_override.position() < m.position()))
    return excerpt(of_override[1], std::stoul(of_override[2]), " ");
  if (!placed) return "";
  const std::string line = line_of(m[1], std::stoul(m[2]));
  return line.empty() ? "" : excerpt(line, std::stoul(m[3]), m[2]);
}

}  // namespace

std::string with_excerpts(const std::string& message) {
  std::istringstream lines(message);
  std::string out;
  for (std::string line; std::getline(lines, line);) out += (out.empty() ? "" : "\n") + line + excerpt_of(line);
  return out;
}

}  // namespace lmx_cli
