#include "cli/output/excerpt.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/table.h"
#include "lmx/error.h"

namespace lmx_cli {
namespace {

// Returns the text before the caret: as wide as the text before the column, with the same tabs.
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

// Shortens a long line to the part around its column, so that the caret is visible.
void shorten(std::string& line, size_t& column, size_t width) {
  if (line.size() <= width) return;
  size_t begin = column > width / 2 ? column - width / 2 : 0;
  while (begin > 0 && (line[begin] & 0xC0) == 0x80) --begin;
  size_t end = std::min(line.size(), begin + width);
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
  const std::string margin = std::string(number.size(), ' ');
  constexpr size_t kMost = 110;  // columns of the line
  const size_t columns = lmx::terminal_columns(STDERR_FILENO), beside = margin.size() + 5, dots = 6;
  shorten(line, column, columns > beside + dots ? std::min(kMost, columns - beside - dots) : kMost);
  return lmx::str("\n  ", number, " | ", line, "\n  ", margin, " | ", padding(line, column), "^");
}

// Reads a number such as "12" in "12: ..." at `at`, and moves `at` after it. nullopt: no number, or more than six
// digits.
std::optional<size_t> number_at(const std::string& text, size_t& at) {
  const size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
  if (end == at || end - at > 6) return std::nullopt;
  const size_t value = std::stoul(text.substr(at, end - at));
  at = end;
  return value;
}

struct Place {
  size_t begin = 0;  // in the message
  std::string text;  // a file, or the override itself
  size_t line = 0, column = 0;
};

// Returns the first "FILE:12:3: " of a message. Messages may contain user input of any length. std::regex is recursive
// for each character and could overflow the stack.
std::optional<Place> file_place(const std::string& message) {
  for (size_t colon = message.find(':'); colon != std::string::npos; colon = message.find(':', colon + 1)) {
    size_t at = colon + 1;
    const auto line = number_at(message, at);
    if (!line || message.compare(at, 1, ":") != 0) continue;
    const auto column = number_at(message, ++at);
    if (!column || message.compare(at, 2, ": ") != 0) continue;
    const size_t before = colon == 0 ? std::string::npos : message.find_last_of(" \t\r\n\v\f:'\"", colon - 1);
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    if (begin < colon) return Place{begin, message.substr(begin, colon - begin), *line, *column};
  }
  return std::nullopt;
}

// Returns the first "override 'TEXT': column 3: ", with the longest possible TEXT.
std::optional<Place> override_place(const std::string& message) {
  constexpr std::string_view kOpen = "override '", kClose = "': column ";
  const size_t begin = message.find(kOpen);
  if (begin == std::string::npos) return std::nullopt;
  for (size_t close = message.rfind(kClose); close != std::string::npos && close > begin && close > 0;
       close = message.rfind(kClose, close - 1)) {
    size_t at = close + kClose.size();
    const auto column = number_at(message, at);
    const size_t text = begin + kOpen.size();
    if (column && close >= text && message.compare(at, 2, ": ") == 0)
      return Place{begin, message.substr(text, close - text), 0, *column};
  }
  return std::nullopt;
}

std::string excerpt_of(const std::string& message) {
  const std::optional<Place> placed = file_place(message), typed = override_place(message);
  // For an override in a file, the message has the position in the file first.
  if (typed && (!placed || typed->begin < placed->begin)) return excerpt(typed->text, typed->column, " ");
  if (!placed) return "";
  const std::string line = line_of(placed->text, placed->line);
  return line.empty() ? "" : excerpt(line, placed->column, std::to_string(placed->line));
}

}  // namespace

std::string with_excerpts(const std::string& message) {
  std::istringstream lines(message);
  std::string out;
  for (std::string line; std::getline(lines, line);) out += (out.empty() ? "" : "\n") + line + excerpt_of(line);
  return out;
}

}  // namespace lmx_cli
