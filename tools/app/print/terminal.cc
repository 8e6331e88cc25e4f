#include "app/print/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace lmx::app {
namespace {

constexpr size_t kGap = 2;     // spaces between two columns of a table
constexpr size_t kLeast = 12;  // columns to which a cell is narrowed first

bool shows_colours() {
  static const bool shows = [] {
    const char *term = std::getenv("TERM"), *no = std::getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) && term && std::string_view(term) != "dumb" && !(no && *no);
  }();
  return shows;
}

using Rows = std::vector<std::vector<std::string>>;

std::vector<size_t> widths_of(const Rows& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  return widths;
}

size_t total_width(const std::vector<size_t>& widths) {
  size_t total = 0;
  for (const size_t w : widths) total += w + kGap;
  return total - std::min(total, kGap);
}

// The longest word of each column. A long word of the last column displaces no other column, so it counts as 12: only
// its own line is too long.
std::vector<size_t> longest_words(const Rows& rows, size_t columns) {
  std::vector<size_t> longest(columns, 1);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i)
      for (const std::string& word : wrapped(row[i], 1)) longest[i] = std::max(longest[i], width_of(word));
  longest.back() = std::min(longest.back(), kLeast);
  return longest;
}

// Reduces the widest columns until they fit into `width`. A column stays as wide as its longest word, and as 12 columns
// if that is enough.
std::vector<size_t> fitted(std::vector<size_t> widths, const std::vector<size_t>& words, size_t width) {
  for (const size_t least : {kLeast, size_t{1}}) {
    for (size_t total = total_width(widths); total > width; --total) {
      size_t widest = widths.size();
      for (size_t i = 0; i < widths.size(); ++i)
        if (widths[i] > std::max(least, words[i]) && (widest == widths.size() || widths[i] > widths[widest]))
          widest = i;
      if (widest == widths.size()) break;
      --widths[widest];
    }
  }
  return widths;
}

// The columns of each part of a table that does not fit: the first one and as many of the others as fit.
std::vector<std::vector<size_t>> parts_of(const std::vector<size_t>& words, size_t width) {
  std::vector<std::vector<size_t>> parts;
  size_t used = 0;
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t more = words[i] + kGap;
    if (parts.empty() || (used + more > width && parts.back().size() > 1)) {
      parts.push_back({0});
      used = words[0];
    }
    parts.back().push_back(i);
    used += more;
  }
  return parts;
}

// Leaves out rows that have nothing in these columns but the first one, unless they are the first part of the table.
Rows with_columns(const Rows& rows, const std::vector<size_t>& columns) {
  Rows part;
  for (const auto& row : rows) {
    std::vector<std::string> cells;
    bool any = columns[1] == 1;
    for (const size_t i : columns) {
      cells.push_back(i < row.size() ? row[i] : "");
      any = any || (i > 0 && !cells.back().empty());
    }
    if (any) part.push_back(std::move(cells));
  }
  return part;
}

// The lines of a table whose columns have these widths.
std::string wrapped_table(const Rows& rows, const std::vector<size_t>& widths, bool wraps) {
  Rows lines;
  for (const auto& row : rows) {
    const size_t first = lines.size();
    lines.emplace_back(row.size());
    for (size_t i = 0; i < row.size(); ++i) {
      const std::vector<std::string> cell = wrapped(row[i], wraps ? widths[i] : 0);
      lines.resize(std::max(lines.size(), first + cell.size()), std::vector<std::string>(row.size()));
      for (size_t h = 0; h < cell.size(); ++h) lines[first + h][i] = cell[h];
    }
  }
  std::string out;
  for (const std::string& line : table_lines(lines, {.gap = kGap, .least = widths})) out += line + "\n";
  return out;
}

}  // namespace

size_t terminal_width() {
  return terminal_columns(STDOUT_FILENO);
}

std::string bold(const std::string& text) {
  return shows_colours() ? "\033[1m" + text + "\033[0m" : text;
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

std::string fit(std::string_view text) {
  return folded(text, terminal_width());
}

std::string table(const Rows& rows, size_t width) {
  const std::vector<size_t> widths = widths_of(rows);
  if (width == 0 || total_width(widths) <= width) return wrapped_table(rows, widths, false);
  const std::vector<size_t> words = longest_words(rows, widths.size());
  const std::vector<std::vector<size_t>> parts = parts_of(words, width);
  if (parts.size() < 2) return wrapped_table(rows, fitted(widths, words, width), true);
  std::string out;
  for (const std::vector<size_t>& part : parts)
    out += (out.empty() ? "" : "\n") + table(with_columns(rows, part), width);
  return out;
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  const std::string text = table(rows, terminal_width());
  const size_t header = text.find('\n');
  return header == std::string::npos ? text : bold(text.substr(0, header)) + text.substr(header);
}

}  // namespace lmx::app
