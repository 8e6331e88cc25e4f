#include "app/text/tokenizer.h"

#include <utf8proc.h>

#include <array>

#include "app/text/utf8.h"

namespace lmx::app {
namespace {

enum class Kind : uint8_t { letter, digit, mark, ideograph, apostrophe, hyphen, point, space, dropped, other };

constexpr bool in_word(Kind k) {
  return k == Kind::letter || k == Kind::digit;
}

constexpr Kind ascii_kind(int c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return Kind::letter;
  if (c >= '0' && c <= '9') return Kind::digit;
  if (c <= ' ' || c == 0x7F) return Kind::space;
  if (c == '\'') return Kind::apostrophe;
  if (c == '-') return Kind::hyphen;
  if (c == '.' || c == ',') return Kind::point;
  return Kind::other;
}

constexpr auto kAscii = [] {
  std::array<Kind, 128> table{};
  for (int c = 0; c < 128; ++c) table[static_cast<size_t>(c)] = ascii_kind(c);
  return table;
}();

// Blocks of Han characters, which have no spaces between words.
bool is_ideograph(int32_t c) {
  return (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x20000 && c <= 0x3FFFD);
}

Kind wide_kind(int32_t c) {
  if (c == 0x2019 || c == 0x02BC) return Kind::apostrophe;
  if (c == 0x2010 || c == 0x2011) return Kind::hyphen;
  if (is_ideograph(c)) return Kind::ideograph;
  switch (category_of(static_cast<char32_t>(c))) {
    case Category::letter:
    case Category::small_letter:
    case Category::letter_number:
    case Category::other_number:
      return Kind::letter;
    case Category::digit:
      return Kind::digit;
    case Category::mark:
    case Category::enclosing_mark:
      return Kind::mark;
    case Category::space:
    case Category::control:
      return Kind::space;
    case Category::format:
      return Kind::dropped;
    default:
      return Kind::other;
  }
}

struct Character {
  int32_t code = 0;
  uint32_t length = 0;  // bytes; 0: not UTF-8
  Kind kind = Kind::other;
};

Character read(std::string_view line, size_t at) {
  const auto byte = static_cast<unsigned char>(line[at]);
  if (byte < 0x80) return {byte, 1, kAscii[byte]};
  char32_t found = 0;
  const size_t length = code_point_at(line, at, found);
  if (length == 0) return {};
  const auto code = static_cast<int32_t>(found);
  return {code, static_cast<uint32_t>(length), wide_kind(code)};
}

// Appends words to a buffer that is never reallocated: lower-casing makes UTF-8 at most 1.5 times as long (U+023A), so
// twice the line's bytes are always enough.
class Writer {
 public:
  Writer(std::string& buffer, std::vector<std::string_view>& words, size_t line_bytes, bool lower)
      : buffer_(buffer), words_(words), lower_(lower) {
    words_.clear();
    buffer_.clear();
    buffer_.reserve(2 * line_bytes + 8);
  }
  bool open() const { return open_; }
  void close() {
    if (open_) words_.push_back(std::string_view(buffer_).substr(start_));
    open_ = false;
  }
  void append(int32_t code) {
    if (!open_) start_ = buffer_.size();
    open_ = true;
    if (code < 0x80) {
      buffer_.push_back(static_cast<char>(lower_ && code >= 'A' && code <= 'Z' ? code + 32 : code));
      return;
    }
    append_utf8(buffer_, static_cast<char32_t>(lower_ ? utf8proc_tolower(code) : code));
  }

 private:
  std::string& buffer_;
  std::vector<std::string_view>& words_;
  bool lower_;
  bool open_ = false;
  size_t start_ = 0;
};

// Returns the character that represents a joining character inside a word, or 0 if it does not join `before` and
// `after`.
int32_t joined(const Character& c, Kind before, Kind after) {
  if (!in_word(before) || !in_word(after)) return 0;
  if (c.kind == Kind::apostrophe) return '\'';
  if (c.kind == Kind::hyphen) return '-';
  return before == Kind::digit && after == Kind::digit ? c.code : 0;
}

size_t split_by_rules(std::string_view line, Writer& out) {
  Kind before = Kind::space;  // last character of the open word; `other` if the open token is not a word
  for (size_t at = 0; at < line.size();) {
    const Character c = read(line, at);
    if (c.length == 0) return at;
    at += c.length;
    int32_t code = c.code;
    switch (c.kind) {
      case Kind::dropped:
        continue;
      case Kind::mark:  // belongs to the preceding character, of any kind
        if (!out.open()) before = Kind::letter;
        break;
      case Kind::letter:
      case Kind::digit:
        if (!in_word(before)) out.close();
        before = c.kind;
        break;
      case Kind::apostrophe:
      case Kind::hyphen:
      case Kind::point: {
        const Kind after = at < line.size() ? read(line, at).kind : Kind::space;
        if (const int32_t inner = joined(c, before, after)) {
          out.append(inner);
          continue;
        }
        out.close();
        before = Kind::other;
        // A single typographic apostrophe is a quotation mark, so only those inside words become ASCII.
        break;
      }
      case Kind::space:
        out.close();
        before = Kind::space;
        continue;
      case Kind::ideograph:
      case Kind::other:
        out.close();
        before = Kind::other;
        break;
    }
    out.append(code);
  }
  out.close();
  return Tokenizer::kValid;
}

size_t split_at_white_space(std::string_view line, Writer& out) {
  for (size_t at = 0; at < line.size();) {
    const Character c = read(line, at);
    if (c.length == 0) return at;
    at += c.length;
    if (c.kind == Kind::space)
      out.close();
    else
      out.append(c.code);
  }
  out.close();
  return Tokenizer::kValid;
}

// Makes each code point a token, including format characters and marks.
size_t split_into_characters(std::string_view line, bool lower, std::string& buffer,
                             std::vector<std::string_view>& words) {
  words.clear();
  buffer.clear();
  buffer.reserve(2 * line.size() + 8);  // see class Writer
  for (size_t at = 0; at < line.size();) {
    const Character c = read(line, at);
    if (c.length == 0) return at;
    if (c.code == '\n') {
      words.push_back("</s>");
    } else if (lower) {
      const size_t start = buffer.size();
      append_utf8(buffer, static_cast<char32_t>(utf8proc_tolower(c.code)));
      words.push_back(std::string_view(buffer).substr(start));
    } else {
      words.push_back(line.substr(at, c.length));
    }
    at += c.length;
  }
  return Tokenizer::kValid;
}

}  // namespace

size_t Tokenizer::split(std::string_view line, std::vector<std::string_view>& words) {
  if (rules_.unit == Unit::character) return split_into_characters(line, rules_.lower_case, buffer_, words);
  Writer out(buffer_, words, line.size(), rules_.lower_case);
  return rules_.whitespace_only ? split_at_white_space(line, out) : split_by_rules(line, out);
}

}  // namespace lmx::app
