#include "base/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>

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

std::string named(const char* format, uint32_t number) {
  char text[16];
  std::snprintf(text, sizeof text, format, number);
  return text;
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
      out += named("<x%02X>", static_cast<unsigned char>(text[at++]));
      continue;
    }
    const size_t whole = kept(at);
    if (whole > 0 || !(is_control(code) || is_invisible(code)))
      out.append(text, at, bytes = std::max(bytes, whole));
    else
      out += named("<U+%04X>", code);
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
  char text[32];
  std::snprintf(text, sizeof text, value < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return text;
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

}  // namespace lmx
