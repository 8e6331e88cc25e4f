#include "config/line_ends.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace lmx::config {
namespace {

constexpr std::string_view kWhite = " \t\r\n";

size_t line_ends(std::string_view text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

// The end of the text inside quotes, after which only white space follows. An escaped blank (`\ `) is text.
size_t end_of_text(std::string_view inner, bool escapes) {
  const size_t last = inner.find_last_not_of(kWhite);
  if (last == std::string_view::npos) return 0;
  size_t i = 0;
  for (; escapes && i <= last; ++i)
    if (inner[i] == '\\') ++i;
  return std::max(std::min(i, inner.size()), last + 1);
}

// Before the closing quote, n line ends fold to n - 1 (YAML 1.2, 6.5), of which yaml-cpp keeps at most one. The text
// before them is parsed again, alone.
std::string with_ends_before_quote(std::string_view inner, char quote, std::string value) {
  const size_t end = end_of_text(inner, quote == '"');
  const size_t ends = line_ends(inner.substr(end));
  const bool escaped_end = end > 0 && inner[end - 1] == '\n';  // a backslash removes the line end
  if (ends < 2 || escaped_end) return value;
  std::string text(1, quote);
  text.append(inner.substr(0, end)) += quote;
  return parse_yaml(text, "").text.append(ends - 1, '\n');
}

size_t indentation_of(std::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

// Spaces before the key, or before the list item's '-', to which the block scalar at column `at` of the line belongs.
size_t parent_indentation(std::string_view line, size_t at) {
  size_t dash = 0, key = indentation_of(line);
  while (line.substr(key).starts_with("- ")) {
    dash = key;
    key = std::min(line.find_first_not_of(' ', key + 1), line.size());
  }
  return key == at ? dash : key;
}

// The number of blank lines after the last line of a block scalar. 0 if that line is indented further than the block,
// since yaml-cpp keeps the line ends in that case. `block`: the block's indentation, or std::string_view::npos if its
// first line decides.
size_t blank_lines_behind(std::string_view below, size_t block) {
  size_t blank = 0;
  bool deeper = false;
  while (!below.empty()) {
    const size_t end = std::min(below.find('\n'), below.size() - 1) + 1;
    const std::string_view line = below.substr(0, end);
    below.remove_prefix(end);
    const size_t indentation = indentation_of(line);
    if (line.find_first_not_of(kWhite) == std::string_view::npos) {
      const bool text = block != std::string_view::npos && std::min(line.find_first_of("\r\n"), line.size()) > block;
      deeper = deeper || text;  // blanks beyond the indentation are text
      blank = text ? 0 : blank + line.ends_with('\n');
      continue;
    }
    if (block == std::string_view::npos) block = indentation;
    if (indentation < block || block == 0) break;
    deeper = indentation > block || line[indentation] == '\t';
    blank = 0;
  }
  return block == std::string_view::npos || deeper ? 0 : blank;
}

}  // namespace

std::string with_line_ends(const SourceText& source, size_t pos, std::string value) {
  const std::string_view text = source.text();
  if (pos >= text.size()) return value;
  if (text[pos] == '\'' || text[pos] == '"') {
    const size_t end = source.end_of_quote(pos);
    const std::string_view inner = text.substr(pos + 1, end - pos - 2);
    return with_ends_before_quote(inner, text[pos], std::move(value));
  }
  const std::string_view header = source.line_at(pos);
  const auto begin = static_cast<size_t>(header.data() - text.data());
  const size_t at = pos - begin;
  const std::string_view style = header.substr(at, header.find_first_of(" \t\r", at) - at);
  if (style[0] != '>' || style.find('+') == std::string_view::npos) return value;
  const size_t digit = style.find_first_of("123456789");
  const size_t block = digit == std::string_view::npos
                           ? std::string_view::npos
                           : parent_indentation(header, at) + static_cast<size_t>(style[digit] - '0');
  const size_t below = begin + header.size() + 1;
  const size_t kept = value.size() - (value.find_last_not_of('\n') + 1);
  const size_t blank = below < text.size() ? blank_lines_behind(text.substr(below), block) : 0;
  // One line end for each blank line, and the line end of the text itself.
  if (kept < value.size() && blank > 0 && kept == blank) value += '\n';
  return value;
}

}  // namespace lmx::config
