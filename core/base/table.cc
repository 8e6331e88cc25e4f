#include "base/table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace lmx {

size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, width_of(text)), ' ');
}

size_t terminal_columns(int descriptor) {
  size_t columns = 0;
  const char* text = std::getenv("COLUMNS");
  const std::string_view given = text ? text : "";
  std::from_chars(given.data(), given.data() + given.size(), columns);
  if (columns > 0) return columns;
  winsize size{};
  return isatty(descriptor) && ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
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

std::string folded(std::string_view text, size_t width) {
  std::string out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (at > 0) out += '\n';
    at = end + 1;
    const size_t lead = std::min(line.find_first_not_of(' '), line.size()), indent = lead + 2;
    if (width <= indent || width_of(line) <= width) {
      out += line;
      continue;
    }
    const std::vector<std::string> parts = wrapped(line.substr(lead), width - indent);
    for (size_t i = 0; i < parts.size(); ++i)
      out += (i == 0 ? std::string(lead, ' ') : '\n' + std::string(indent, ' ')) + parts[i];
  }
  return out;
}

std::string shortened(std::string_view line, size_t width) {
  if (width == 0 || width_of(line) <= width) return std::string(line);
  const std::string_view gap = line.find("  ") == std::string_view::npos ? " " : "  ";
  size_t end = 0;
  for (size_t at = line.find(gap); at != std::string_view::npos; at = line.find(gap, at + gap.size()))
    if (width_of(line.substr(0, at)) <= width) end = at;
  return std::string(line.substr(0, end));
}

std::vector<std::string> table_lines(const std::vector<std::vector<std::string>>& rows, const TableLayout& layout) {
  std::vector<size_t> widths = layout.least;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::vector<std::string> lines;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - width_of(row[i]), ' ');
      line += std::string(i > 0 ? layout.gap : 0, ' ') + (i < layout.left ? row[i] + space : space + row[i]);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace lmx
