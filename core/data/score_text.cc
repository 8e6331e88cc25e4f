#include "data/score_text.h"

#include <utf8proc.h>

#include "lmx/error.h"

namespace lmx::data::score {
namespace {

// The code point at text[at], of `bytes` bytes; 0 bytes where there is none.
struct Step {
  int32_t code_point;
  size_t bytes;
};

Step step_at(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {first, 1};
  utf8proc_int32_t c = -1;
  const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at),
                                  static_cast<utf8proc_ssize_t>(text.size() - at), &c);
  return {c, n > 0 ? static_cast<size_t>(n) : 0};
}

}  // namespace

size_t first_invalid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Step step = step_at(text, i);
    if (step.bytes == 0) return i;
    i += step.bytes;
  }
  return kAllValid;
}

std::vector<int32_t> code_points(std::string_view text) {
  std::vector<int32_t> out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Step step = step_at(text, i);
    LMX_CHECK(step.bytes > 0, "no UTF-8 at byte ", i);
    out.push_back(step.code_point);
    i += step.bytes;
  }
  return out;
}

void append_utf8(std::string& text, int32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const auto n = utf8proc_encode_char(code_point, bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
}

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const int32_t c : code_points(text)) append_utf8(out, utf8proc_tolower(c));
  return out;
}

bool is_white_space(int32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view trim_end(std::string_view text) {
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (text[last] & 0xC0) == 0x80) --last;
    if (!is_white_space(step_at(text, last).code_point)) break;
    text = text.substr(0, last);
  }
  return text;
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const Step step = step_at(text, i);
    LMX_CHECK(step.bytes > 0, "no UTF-8 at byte ", i);
    if (is_white_space(step.code_point)) {
      if (i > begin) words.emplace_back(text.substr(begin, i - begin));
      begin = i + step.bytes;
    }
    i += step.bytes;
  }
  if (text.size() > begin) words.emplace_back(text.substr(begin));
  return words;
}

}  // namespace lmx::data::score
