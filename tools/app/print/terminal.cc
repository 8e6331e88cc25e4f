#include "app/print/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace lmx_cli {
namespace {

constexpr size_t kGap = 2;  // spaces between two columns of a table

bool shows_colours() {
  static const bool shows = [] {
    const char *term = std::getenv("TERM"), *no = std::getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) && term && std::string_view(term) != "dumb" && !(no && *no);
  }();
  return shows;
}

// Returns column widths that fit into `width`. The widest columns are reduced, but not below 12 or the longest word. A
// long word of the last column displaces no other column, so it does not count: only its own line is too long.
std::vector<size_t> fitted(const std::vector<std::vector<std::string>>& rows, std::vector<size_t> widths,
                           size_t width) {
  constexpr size_t kLeast = 12;
  std::vector<size_t> least(widths.size(), kLeast);
  for (const auto& row : rows)
    for (size_t i = 0; i + 1 < widths.size() && i < row.size(); ++i)
      for (const std::string& word : wrapped(row[i], 1)) least[i] = std::max(least[i], width_of(word));
  size_t total = 0;
  for (const size_t w : widths) total += w + kGap;
  for (; total > width + kGap; --total) {
    size_t widest = widths.size();
    for (size_t i = 0; i < widths.size(); ++i)
      if (widths[i] > least[i] && (widest == widths.size() || widths[i] > widths[widest])) widest = i;
    if (widest == widths.size()) break;
    --widths[widest];
  }
  return widths;
}

}  // namespace

size_t terminal_width() {
  size_t columns = 0;
  const char* text = std::getenv("COLUMNS");
  const std::string_view given = text ? text : "";
  std::from_chars(given.data(), given.data() + given.size(), columns);
  if (columns > 0) return columns;
  winsize size{};
  return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string bold(const std::string& text) {
  return shows_colours() ? "\033[1m" + text + "\033[0m" : text;
}

std::vector<std::string> wrapped(std::string_view text, size_t width) {
  std::vector<std::string> lines{""};
  if (width == 0) width = std::string::npos;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\n') {
      lines.emplace_back();
      ++at;
      continue;
    }
    const size_t begin = std::min(text.find_first_not_of(' ', at), text.size()),
                 end = std::min(text.find_first_of(" \n", begin), text.size());
    const std::string_view gap = text.substr(at, begin - at), word = text.substr(begin, end - begin);
    if (lines.back().empty() || width_of(lines.back()) + gap.size() + width_of(word) <= width)
      lines.back() += lines.back().empty() && lines.size() > 1 ? "" : gap;
    else if (!word.empty())
      lines.emplace_back();
    lines.back() += word;
    at = end;
  }
  return lines;
}

std::string two_columns(const std::string& left, const std::string& right, size_t column, size_t width) {
  std::string out = "  " + left;
  if (right.empty()) return out + "\n";
  size_t at = width_of(out);
  for (const std::string& line : wrapped(right, width > column ? width - column : 0)) {
    if (at >= column) {
      out += "\n";
      at = 0;
    }
    out += std::string(column - at, ' ') + line;
    at = column;
  }
  return out + "\n";
}

std::string table(const std::vector<std::vector<std::string>>& rows, size_t width) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  if (width > 0) widths = fitted(rows, std::move(widths), width);
  std::vector<std::vector<std::string>> lines;
  for (const auto& row : rows) {
    const size_t first = lines.size();
    lines.emplace_back(row.size());
    for (size_t i = 0; i < row.size(); ++i) {
      const std::vector<std::string> cell = wrapped(row[i], width > 0 ? widths[i] : 0);
      lines.resize(std::max(lines.size(), first + cell.size()), std::vector<std::string>(row.size()));
      for (size_t h = 0; h < cell.size(); ++h) lines[first + h][i] = cell[h];
    }
  }
  std::string out;
  for (const std::string& line : lmx::table_lines(lines, {.gap = kGap, .least = widths})) out += line + "\n";
  return out;
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  const std::string text = table(rows, terminal_width());
  const size_t header = text.find('\n');
  return header == std::string::npos ? text : bold(text.substr(0, header)) + text.substr(header);
}

}  // namespace lmx_cli
