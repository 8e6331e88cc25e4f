#include "base/text.h"

#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "lmx/error.h"

namespace lmx {
namespace {

bool is_control(char32_t code) {
  return code != '\n' && code != '\t' && (code < 0x20 || (code >= 0x7f && code < 0xa0));
}

// Letters and marks that have no shape: fillers of Hangul, the blank of Braille, joiners, variation selectors.
bool has_no_shape(char32_t code) {
  return code == 0x034f || code == 0x115f || code == 0x1160 || code == 0x2800 || code == 0x3164 || code == 0xffa0 ||
         (code >= 0x180b && code <= 0x180f) || (code >= 0xfe00 && code <= 0xfe0f) ||
         (code >= 0xe0000 && code <= 0xe0fff);
}

bool is_invisible(char32_t code) {
  if (code < 0x80) return false;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return true;
    default:
      return has_no_shape(code);
  }
}

// The length of the sequence "\033[1;31m" that begins at `at`; 0 if none does.
size_t colour_at(std::string_view text, size_t at) {
  if (text.substr(at, 2) != "\033[") return 0;
  const size_t end = text.find_first_not_of("0123456789;", at + 2);
  return end != std::string_view::npos && text[end] == 'm' ? end + 1 - at : 0;
}

template <class Kept>
std::string shown(std::string_view text, const Kept& kept) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    auto code = static_cast<char32_t>(static_cast<unsigned char>(text[at]));
    size_t bytes = code < 0x80 ? 1 : code_point_at(text, at, code);
    if (bytes == 0) {
      out += format("<x%02X>", static_cast<unsigned char>(text[at++]));
      continue;
    }
    const size_t whole = kept(at);
    if (whole > 0 || !(is_control(code) || is_invisible(code)))
      out.append(text, at, bytes = std::max(bytes, whole));
    else
      out += format("<U+%04X>", code);
    at += bytes;
  }
  return out;
}

}  // namespace

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end};
}

double number_from_text(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) throw UserError(str("'", text, "' is no number"));
  return value;
}

std::string format(const char* pattern, ...) {
  std::va_list values, again;
  va_start(values, pattern);
  va_copy(again, values);
  std::string text(static_cast<size_t>(std::max(0, std::vsnprintf(nullptr, 0, pattern, values))), '\0');
  std::vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  va_end(values);
  return text;
}

std::string count_text(int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

std::string bytes_text(int64_t bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 999.5 && unit < 4; ++unit) value /= 1000;
  return format(value < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

std::string printable(std::string_view text) {
  return shown(text, [](size_t) { return size_t{0}; });
}

std::string printable_with_colours(std::string_view text) {
  return shown(text, [&](size_t at) { return colour_at(text, at); });
}

size_t code_point_at(std::string_view text, size_t at, char32_t& code) {
  utf8proc_int32_t found = 0;
  const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                      static_cast<utf8proc_ssize_t>(text.size() - at), &found);
  code = static_cast<char32_t>(found);
  return bytes > 0 ? static_cast<size_t>(bytes) : 0;
}

size_t find_invalid_utf8(std::string_view text) {
  return for_each_code_point(text, [](size_t, char32_t) {});
}

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
