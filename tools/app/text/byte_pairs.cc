#include "app/text/byte_pairs.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <queue>

#include "app/text/utf8.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

constexpr size_t kShort = 64;  // ids of a piece that is searched for its next merge again and again

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

bool BytePairs::add(int32_t left, int32_t right, int32_t merged) {
  return merges_.try_emplace(key_of(left, right), Merge{static_cast<int32_t>(merges_.size()), merged}).second;
}

const BytePairs::Merge* BytePairs::find(int32_t left, int32_t right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePairs::merge(std::vector<int32_t>& ids) const {
  ids.size() <= kShort ? merge_short(ids) : merge_long(ids);
}

void BytePairs::merge_short(std::vector<int32_t>& ids) const {
  std::vector<const Merge*> next;  // the merge of each id and the one after it
  for (size_t i = 0; i + 1 < ids.size(); ++i) next.push_back(find(ids[i], ids[i + 1]));
  for (;;) {
    size_t best = next.size();
    for (size_t i = 0; i < next.size(); ++i)
      if (next[i] && (best == next.size() || next[i]->rank < next[best]->rank)) best = i;
    if (best == next.size()) return;
    ids[best] = next[best]->merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    next.erase(next.begin() + static_cast<std::ptrdiff_t>(best));
    if (best > 0) next[best - 1] = find(ids[best - 1], ids[best]);
    if (best < next.size()) next[best] = find(ids[best], ids[best + 1]);
  }
}

// The same with a heap, in O(n log n). An id that was merged into the one before it is -1.
void BytePairs::merge_long(std::vector<int32_t>& ids) const {
  struct Candidate {
    int32_t rank, merged;
    size_t at, next;
    int32_t left, right;
    bool operator<(const Candidate& other) const {  // the heap has its largest element first
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  const size_t n = ids.size();
  std::vector<size_t> before(n), after(n);
  for (size_t i = 0; i < n; ++i) {
    before[i] = i - 1;
    after[i] = i + 1;
  }
  std::priority_queue<Candidate> heap;
  const auto propose = [&](size_t at) {
    if (at >= n || after[at] >= n) return;
    if (const Merge* m = find(ids[at], ids[after[at]]))
      heap.push({m->rank, m->merged, at, after[at], ids[at], ids[after[at]]});
  };
  for (size_t i = 0; i + 1 < n; ++i) propose(i);
  while (!heap.empty()) {
    const Candidate c = heap.top();
    heap.pop();
    if (ids[c.at] != c.left || after[c.at] != c.next || ids[c.next] != c.right) continue;  // one of them was merged
    ids[c.at] = c.merged;
    ids[c.next] = -1;
    after[c.at] = after[c.next];
    if (after[c.at] < n) before[after[c.at]] = c.at;
    propose(before[c.at]);
    propose(c.at);
  }
  std::erase(ids, -1);
}

const std::array<std::string, 256>& byte_characters() {
  static const auto characters = [] {
    std::array<std::string, 256> all;
    char32_t other = 0x100;
    for (char32_t byte = 0; byte < all.size(); ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      append_utf8(all[byte], printable ? byte : other++);
    }
    return all;
  }();
  return characters;
}

bool bytes_of_characters(std::string_view text, std::string& bytes) {
  static const auto values = [] {
    std::unordered_map<char32_t, char> all;
    for (size_t byte = 0; byte < 256; ++byte) all[code_points(byte_characters()[byte])[0]] = static_cast<char>(byte);
    return all;
  }();
  std::u32string codes;
  bytes.clear();
  if (decode_utf8(text, codes) != kValidUtf8) return false;
  for (const char32_t code : codes) {
    const auto found = values.find(code);
    if (found == values.end()) return false;
    bytes.push_back(found->second);
  }
  return true;
}

namespace {

constexpr uint32_t kMatchLimit = 10'000'000;  // steps of one match: an untrusted pattern must not run for hours
constexpr size_t kLeastStack = 32 << 10, kMostStack = 16 << 20;
constexpr std::string_view kWhiteSpace = "\\t\\n\\x0b\\f\\r\\x{85}\\p{Z}";  // \s of Oniguruma; that of PCRE2 has U+180E

// Translates a pattern of Oniguruma to PCRE2, character by character. Refuses everything that the two read differently.
class Translator {
 public:
  Translator(const std::string& pattern, const std::string& place) : in_(pattern), place_(place) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\')
        escape();
      else if (c == '(')
        group();
      else if (c == '[')
        bracket();
      else if (c == '{' && !in_class_)
        brace();
      else
        character(c);
    }
    return out_;
  }

 private:
  std::string_view rest() const { return std::string_view(in_).substr(at_); }
  void copy(size_t n) {
    out_ += rest().substr(0, n);
    at_ += n;
  }
  void replace(size_t n, std::string_view by) {
    at_ += n;
    out_ += by;
  }
  [[noreturn]] void refuse(std::string_view part) const {
    throw UserError(
        str(place_, "lmx does not read '", part, folds() ? "' within '(?i:" : "", "' in the pattern '", in_, "'"));
  }

  void character(char c) {
    if (c == '&' && in_class_ && rest().starts_with("&&")) refuse("&&");
    if (folds()) check_folding(c);
    if (c == ')' && !in_class_ && !folds_.empty()) folds_.pop_back();
    if (c == ']') in_class_ = false;
    copy(1);
  }

  // Whether the case of letters does not matter here.
  bool folds() const { return !folds_.empty() && folds_.back(); }

  // Then Oniguruma compares folded texts, and PCRE2 characters: "ss" is also U+00DF for Oniguruma, and "fi" U+FB01. The
  // other such pairs have a character that is not ASCII. A parenthesis or {1} between the letters changes nothing.
  void check_folding(char c) {
    if (static_cast<unsigned char>(c) >= 0x80) refuse("a character that is not ASCII");
    if (in_class_ || std::string_view(")?*+").find(c) != std::string_view::npos) return;
    const char letter = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    for (const std::string_view pair : {"ss", "st", "ff", "fi", "fl"})
      if (before_ == pair[0] && letter == pair[1]) refuse(pair);
    before_ = letter;
  }

  // The repetitions of Oniguruma are {n}, {n,}, {n,m} and {,m}. Any other brace is text.
  void brace() {
    const size_t end = rest().find('}');
    const std::string inside(rest().substr(1, end == std::string_view::npos ? 0 : end - 1));
    const size_t comma = inside.find(',');
    const std::string low = inside.substr(0, comma), high = comma == std::string::npos ? "" : inside.substr(comma + 1);
    if ((low + high).empty() || (low + high).find_first_not_of("0123456789") != std::string::npos)
      return replace(1, "\\{");
    // A possessive or lazy repetition for PCRE2, one more repetition for Oniguruma.
    const char after = end + 1 < rest().size() ? rest()[end + 1] : '\0';
    if (after == '+' || (after == '?' && comma == std::string::npos)) refuse(rest().substr(0, end + 2));
    replace(end + 1, str('{', low.empty() ? "0" : low, comma == std::string::npos ? "" : ",", high, '}'));
  }

  void group() {
    if (in_class_) return character('(');
    if (!rest().starts_with("(?")) {
      if (rest().starts_with("(*")) refuse("(*");
      folds_.push_back(folds());
      return copy(1);
    }
    for (const std::string_view known : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (!rest().starts_with(known)) continue;
      if (!folds()) before_ = 0;
      folds_.push_back(folds() || known == "(?i:");
      return copy(known.size());
    }
    refuse(rest().substr(0, 3));
  }

  void bracket() {
    if (in_class_) refuse("[ in a class");
    in_class_ = true;
    before_ = 0;
    copy(1);
    if (rest().starts_with('^')) copy(1);
    if (rest().starts_with(']')) refuse("[]");
  }

  void escape() {
    if (at_ + 1 == in_.size()) refuse("\\ at its end");
    const char c = in_[at_ + 1];
    before_ = 0;
    if (folds() && std::string_view("pPDux").find(c) != std::string_view::npos) refuse(rest().substr(0, 2));
    if (c == 's') return replace(2, in_class_ ? std::string(kWhiteSpace) : str("[", kWhiteSpace, "]"));
    if (c == 'S' && !in_class_) return replace(2, str("[^", kWhiteSpace, "]"));
    if (c == 'v') return replace(2, "\\x0b");
    if (c == 'p' || c == 'P') return property();
    if (c == 'u' && rest().size() >= 6) return code(rest().substr(2, 4), 6);
    if (const size_t end = rest().find('}'); rest().starts_with("\\x{") && end != std::string_view::npos)
      return code(rest().substr(3, end - 3), end + 1);
    if (c == 'x') refuse("\\x without {}");  // a byte for Oniguruma
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter && std::string_view("dDrntf").find(c) == std::string_view::npos) refuse(rest().substr(0, 2));
    copy(2);
  }

  // A character by its hexadecimal number. `length`: of all of it.
  void code(std::string_view number, size_t length) {
    if (number.empty() || number.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
      refuse(rest().substr(0, 2));
    replace(length, str("\\x{", number, "}"));
  }

  // \p{L} is a category for both. PCRE2 would read \p{Han} as the script extensions.
  void property() {
    const size_t end = rest().find('}');
    if (!rest().substr(2).starts_with('{') || end == std::string_view::npos) refuse(rest().substr(0, 3));
    std::string_view name = rest().substr(3, end - 3);
    bool negated = in_[at_ + 1] == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    constexpr std::string_view kCategories =
        " L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs C Cc Cf Cn Co Cs ";
    const bool category = name.size() <= 2 && kCategories.find(str(' ', name, ' ')) != std::string_view::npos;
    const std::string written = str(negated ? "\\P{" : "\\p{", category ? "" : "sc:", name, "}");
    replace(end + 1, written);
  }

  const std::string& in_;
  const std::string& place_;
  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::vector<bool> folds_;  // for each open group: it is within (?i:
  char before_ = 0;          // the character before this place within (?i:
};

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR bytes_of(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

template <class T, void (*free)(T*)>
struct Free {
  void operator()(T* object) const { free(object); }
};
template <class T, void (*free)(T*)>
using Owned = std::unique_ptr<T, Free<T, free>>;

}  // namespace

struct Pattern::Impl {
  std::string text, place;
  Owned<pcre2_code, pcre2_code_free> code = {};
  bool jit = false;
};

std::string Pattern::translated(const std::string& pattern, const std::string& place) {
  return Translator(pattern, place).run();
}

Pattern::Pattern(const std::string& pattern, bool literal, const std::string& place) {
  const std::string text = literal ? pattern : translated(pattern, place);
  const Owned<pcre2_compile_context, pcre2_compile_context_free> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
  // PCRE2 10.42 would find no match of "a+(b)?+a" in "aaa": it takes a+ for the end of the atomic group behind it.
  for (const char* atomic : {"(?>", ")?+", ")*+", ")++"})
    if (!literal && text.find(atomic) != std::string::npos) options |= PCRE2_NO_AUTO_POSSESS;
  int error = 0;
  PCRE2_SIZE offset = 0;
  Impl impl{pattern, place};
  impl.code.reset(pcre2_compile(bytes_of(text), text.size(), options, &error, &offset, context.get()));
  if (!impl.code) throw UserError(str(place, "'", pattern, "' is no pattern: ", message_of(error)));
  uint32_t empty = 0;
  pcre2_pattern_info(impl.code.get(), PCRE2_INFO_MATCHEMPTY, &empty);
  if (empty || text.empty()) throw UserError(str(place, "the pattern '", pattern, "' matches the empty text"));
  impl.jit = pcre2_jit_compile(impl.code.get(), PCRE2_JIT_COMPLETE) == 0;  // without JIT, matching is only slower
  impl_ = std::make_shared<const Impl>(std::move(impl));
}

struct Pattern::Matcher::Memory {
  Owned<pcre2_match_data, pcre2_match_data_free> match;
  Owned<pcre2_match_context, pcre2_match_context_free> context;
  Owned<pcre2_jit_stack, pcre2_jit_stack_free> stack;
};

Pattern::Matcher::Matcher(const Pattern& pattern) : pattern_(pattern.impl_), memory_(std::make_shared<Memory>()) {
  memory_->match.reset(pcre2_match_data_create_from_pattern(pattern_->code.get(), nullptr));
  memory_->context.reset(pcre2_match_context_create(nullptr));
  memory_->stack.reset(pcre2_jit_stack_create(kLeastStack, kMostStack, nullptr));
  pcre2_set_match_limit(memory_->context.get(), kMatchLimit);
  pcre2_jit_stack_assign(memory_->context.get(), nullptr, memory_->stack.get());
}

bool Pattern::Matcher::find(std::string_view text, size_t from, size_t& begin, size_t& end) {
  const auto match = pattern_->jit ? pcre2_jit_match : pcre2_match;
  const int code = match(pattern_->code.get(), bytes_of(text), text.size(), from, PCRE2_NO_UTF_CHECK,
                         memory_->match.get(), memory_->context.get());
  if (code == PCRE2_ERROR_NOMATCH) return false;
  if (code < 0)
    throw UserError(str(pattern_->place, "the pattern '", pattern_->text, "' cannot be matched to a text of ",
                        text.size(), " bytes: ", message_of(code)));
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(memory_->match.get());
  begin = range[0];
  end = range[1];
  return end > begin;
}

namespace {

struct Part {
  size_t begin, end;
  bool match;
};

// Joins each match to the part before it (with `next`: after it), but only the nearest one of several matches in a row.
std::vector<Part> merged(std::vector<Part> parts, bool next) {
  if (next) std::reverse(parts.begin(), parts.end());
  std::vector<Part> all;
  bool after_match = false;
  for (const Part& part : parts) {
    if (part.match && !after_match && !all.empty())
      all.back() = {std::min(all.back().begin, part.begin), std::max(all.back().end, part.end), false};
    else
      all.push_back(part);
    after_match = part.match;
  }
  if (next) std::reverse(all.begin(), all.end());
  return all;
}

}  // namespace

PreTokenizer::PreTokenizer(const std::vector<PreTokenizerStep>& steps) {
  for (const PreTokenizerStep& rule : steps) {
    Step& step = steps_.emplace_back(Step{rule, {}, {}});
    if (rule.pattern) step.matcher.emplace(*rule.pattern);
  }
}

void PreTokenizer::cut_from(size_t index, std::string_view text, const Visit& piece) {
  if (text.empty()) return;
  if (index == steps_.size()) return piece(text);
  Step& step = steps_[index];
  if (step.rule.prefix_space && !text.starts_with(' ')) {
    step.prefixed = " ";
    step.prefixed += text;
    text = step.prefixed;
  }
  const auto next = [&](size_t begin, size_t end) {
    if (end > begin) cut_from(index + 1, text.substr(begin, end - begin), piece);
  };
  if (!step.matcher) return next(0, text.size());
  using Behaviour = PreTokenizerStep::Behaviour;
  const Behaviour behaviour = step.rule.behaviour;
  std::vector<Part> parts;
  size_t at = 0, begin = 0, end = 0;
  while (at < text.size() && step.matcher->find(text, at, begin, end)) {
    if (behaviour == Behaviour::with_previous || behaviour == Behaviour::with_next) {
      if (begin > at) parts.push_back({at, begin, false});
      parts.push_back({begin, end, true});
    } else {
      next(at, begin);
      if (behaviour == Behaviour::isolated) next(begin, end);
    }
    at = end;
  }
  if (parts.empty()) return next(at, text.size());
  if (at < text.size()) parts.push_back({at, text.size(), false});
  for (const Part& part : merged(std::move(parts), behaviour == Behaviour::with_next)) next(part.begin, part.end);
}

std::string pattern_unicode_version() {
  std::array<char, 32> version{};
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version.data());
  return version.data();
}

}  // namespace lmx::app
