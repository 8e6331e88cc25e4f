#include "app/text/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>

#include "base/text.h"
#include "lmx/error.h"

namespace lmx::app {

size_t decode_utf8(std::string_view text, std::u32string& out) {
  out.reserve(out.size() + text.size());
  return for_each_code_point(text, [&](size_t, char32_t code) { out.push_back(code); });
}

void append_utf8(std::string& out, char32_t code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
    return;
  }
  utf8proc_uint8_t bytes[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
}

Category category_of(char32_t c) {
  using enum Category;
  // In the order of utf8proc_category_t: Cn; Lu, Ll, Lt, Lm, Lo; Mn, Mc, Me; Nd, Nl, No; Pc, Pd, Ps, Pe, Pi, Pf, Po;
  // Sm, Sc, Sk, So; Zs, Zl, Zp; Cc, Cf, Cs, Co.
  static constexpr Category kAll[] = {
      other,          letter,      small_letter,  letter,       letter,      letter,      mark,        mark,
      enclosing_mark, digit,       letter_number, other_number, punctuation, punctuation, punctuation, punctuation,
      punctuation,    punctuation, punctuation,   symbol,       currency,    symbol,      symbol,      space,
      space,          space,       control,       format,       other,       other};
  static_assert(UTF8PROC_CATEGORY_LL == 2 && UTF8PROC_CATEGORY_ME == 8 && UTF8PROC_CATEGORY_NO == 11 &&
                UTF8PROC_CATEGORY_SC == 20 && UTF8PROC_CATEGORY_CF == 27 &&
                std::size(kAll) == UTF8PROC_CATEGORY_CO + 1);
  return kAll[utf8proc_category(static_cast<utf8proc_int32_t>(c))];
}

std::u32string code_points(std::string_view text) {
  std::u32string out;
  const size_t wrong = decode_utf8(text, out);
  LMX_CHECK(wrong == kValidUtf8, "no UTF-8 at byte ", wrong);
  return out;
}

namespace {

void append_composed(std::string_view text, std::string& to) {
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &out, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> own(out, std::free);
  LMX_CHECK(size >= 0, utf8proc_errmsg(size));
  to.append(reinterpret_cast<const char*>(out), static_cast<size_t>(size));
}

}  // namespace

// Composes only the parts that contain a character for which begins_composition() is false, each from the character
// before it to the next one for which it is true.
std::string_view compose_characters(std::string_view text, std::string& memory) {
  const auto below = [](char c) { return static_cast<unsigned char>(c) < 0xCC; };  // U+0300 begins with 0xCC
  if (std::all_of(text.begin(), text.end(), below)) return text;
  memory.clear();
  size_t copied = 0, last = 0;  // bytes of `text` that are in `memory`; the last character that begins a composition
  bool open = false;            // the part from `last` on has a character that does not
  const auto finish = [&](size_t at) {
    if (!open) return;
    memory += text.substr(copied, last - copied);
    append_composed(text.substr(last, at - last), memory);
    copied = at;
    open = false;
  };
  for_each_code_point(text, [&](size_t at, char32_t code) {
    if (!begins_composition(code)) {
      open = true;
      return;
    }
    finish(at);
    last = at;
  });
  finish(text.size());
  if (copied == 0) return text;
  memory += text.substr(copied);
  return memory;
}

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : code_points(text))
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  return out;
}

size_t whole_characters(std::string_view text, size_t most) {
  if (text.size() <= most) return text.size();
  while (most > 0 && (text[most] & 0xC0) == 0x80) --most;
  return most;
}

std::string_view trim_end(std::string_view text) {
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (text[last] & 0xC0) == 0x80) --last;
    if (!is_white_space(code_points(text.substr(last))[0])) break;
    text = text.substr(0, last);
  }
  return text;
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words{""};
  for (const char32_t c : code_points(text)) {
    if (!is_white_space(c)) {
      append_utf8(words.back(), c);
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

void refuse_invalid_utf8(const std::string& path, int64_t number, int64_t offset, std::string_view line, size_t at) {
  const int64_t position = offset + static_cast<int64_t>(at);
  const bool utf16 = position == 0 && (line.starts_with("\xFF\xFE") || line.starts_with("\xFE\xFF"));
  throw UserError(str("[data] ", path, ":", number, ": byte ", format("0x%02X", static_cast<unsigned char>(line[at])),
                      " at offset ", position, path.ends_with(".gz") || path.ends_with(".zst") ? " (decompressed)" : "",
                      " is not UTF-8; convert the file first, for example ", "with iconv -f ",
                      utf16 ? "UTF-16" : "LATIN1", " -t UTF-8"));
}

LineReader::LineReader(const std::string& path, bool any_bytes)
    : name_(path == "-" ? "standard input" : path),
      file_(path, Content::text),
      any_bytes_(any_bytes),
      buffer_(1 << 16) {}

void refuse_long_line(const std::string& name, int64_t line) {
  throw UserError(str("[data] ", name, ":", line, ": this line has more than ", kLongestLine >> 20,
                      " MB; is it text with line ends?"));
}

std::optional<std::string> LineReader::next() {
  std::string line;
  bool found = false;
  while (!found) {
    if (at_ == end_) {
      at_ = 0;
      end_ = file_.read_some(buffer_.data(), buffer_.size());
      if (end_ == 0 && line.empty()) return std::nullopt;
      if (end_ == 0) break;
    }
    const char* begin = buffer_.data() + at_;
    const auto* stop = static_cast<const char*>(std::memchr(begin, '\n', end_ - at_));
    found = stop != nullptr;
    const size_t n = found ? static_cast<size_t>(stop - begin) : end_ - at_;
    line.append(begin, n);
    at_ += n + found;
    if (line.size() > app::kLongestLine) refuse_long_line(name_, lines_ + 1);
  }
  ++lines_;
  const size_t wrong = any_bytes_ ? kValidUtf8 : find_invalid_utf8(line);
  if (wrong != kValidUtf8) refuse_invalid_utf8(name_, lines_, file_.skipped() + offset_, line, wrong);
  offset_ += static_cast<int64_t>(line.size()) + found;
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

Lines read_lines(const std::string& path) {
  LineReader reader(path);
  Lines lines;
  while (auto line = reader.next()) lines.push_back(*std::move(line));
  return lines;
}

}  // namespace lmx::app
