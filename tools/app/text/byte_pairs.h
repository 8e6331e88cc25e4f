// The parts of tokenizers of subwords: a cache of pieces, added tokens, byte-pair encoding, and the pieces that it
// encodes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "app/text/utf8.h"
#include "data/word_table.h"

namespace lmx::app {

// The ids of the distinct pieces of a text.

// Encodes each distinct piece (a word) only once, which is ten times as fast. Each thread needs its own object. Memory:
// at most about 50 MB.
class PieceCache {
 public:
  // Appends the ids of `piece` to `ids`. `encode(piece, ids)` appends them if the piece is new.
  template <class Encode>
  void append(std::string_view piece, std::vector<int32_t>& ids, Encode&& encode) {
    int64_t index = pieces_.find(piece);
    if (index < 0 && pieces_.size() >= kRemembered) return encode(piece, ids);
    if (index < 0) {
      index = pieces_.add(piece, 0);
      encode(piece, ids_);
      ends_.push_back(ids_.size());
    }
    const auto first = ids_.begin() + static_cast<std::ptrdiff_t>(ends_[static_cast<size_t>(index)]);
    const auto last = ids_.begin() + static_cast<std::ptrdiff_t>(ends_[static_cast<size_t>(index) + 1]);
    ids.insert(ids.end(), first, last);
  }

 private:
  static constexpr int64_t kRemembered = 1 << 20;
  WordTable pieces_;
  std::vector<int32_t> ids_;     // of all pieces, concatenated
  std::vector<size_t> ends_{0};  // piece i has the ids in [ends_[i], ends_[i + 1])
};

// Tokens that a tokenizer.json adds to its model, and finds in text as they are.
struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false, normalized = false, lstrip = false, rstrip = false;
};

// Finds added tokens in a text: at each place the longest one.
class AddedTokens {
 public:
  void add(const AddedToken& token) {
    const auto first = static_cast<unsigned char>(token.content[0]);
    std::vector<AddedToken>& own = by_byte_[first];
    own.push_back(token);
    std::stable_sort(own.begin(), own.end(),
                     [](const AddedToken& a, const AddedToken& b) { return a.content.size() > b.content.size(); });
    empty_ = false;
  }
  // Calls text(part) for each part of `all` between tokens, and token(t) for each token, in order. `found(t)` says
  // whether a token counts.
  template <class OfText, class OfToken, class Found>
  void cut(std::string_view all, OfText&& text, OfToken&& token, Found&& found) const {
    size_t begin = 0, at = 0;
    while (!empty_ && at < all.size()) {
      const AddedToken* here = find(all.substr(at));
      if (!here) {
        ++at;
        continue;
      }
      size_t start = at, stop = at + here->content.size();
      at = stop;
      if (!found(*here)) continue;
      if (here->lstrip) start = std::max(begin, start - white_before(all.substr(0, start)));
      if (here->rstrip) stop += white_after(all.substr(stop));
      if (start > begin) text(all.substr(begin, start - begin));
      token(*here);
      begin = stop;
    }
    if (begin < all.size()) text(all.substr(begin));
  }

 private:
  const AddedToken* find(std::string_view text) const {
    for (const AddedToken& token : by_byte_[static_cast<unsigned char>(text[0])])
      if (text.starts_with(token.content)) return &token;
    return nullptr;
  }
  // Unicode's White_Space, without the separators U+001C to U+001F of is_white_space().
  static bool is_white(char32_t c) { return is_white_space(c) && !(c >= 0x1C && c <= 0x1F); }
  // Bytes of the white space at the start and at the end of a text.
  static size_t white_after(std::string_view text) {
    size_t at = 0, next = 0;
    for (; at < text.size(); at = next) {
      next = at + 1;
      while (next < text.size() && continues(text[next])) ++next;
      if (!is_white(code_points(text.substr(at, next - at))[0])) break;
    }
    return at;
  }
  static size_t white_before(std::string_view text) {
    size_t begin = text.size();
    for (size_t at = begin; at > 0; begin = at) {
      --at;
      while (at > 0 && continues(text[at])) --at;
      if (!is_white(code_points(text.substr(at, begin - at))[0])) break;
    }
    return text.size() - begin;
  }
  static bool continues(char c) { return (c & 0xC0) == 0x80; }
  std::array<std::vector<AddedToken>, 256> by_byte_;
  bool empty_ = true;
};

// Byte-pair encoding of a piece of text.

// The merges of a byte-pair encoding over ids. Thread-safe after the last add().
class BytePairs {
 public:
  // The merge of the ids `left` and `right` to `merged`; an earlier one has priority. Returns false if there is one.
  bool add(int32_t left, int32_t right, int32_t merged);
  // Merges the ids of a piece until no merge applies, in the order of the merges, equal ones from left to right.
  void merge(std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    int32_t rank, merged;
  };
  const Merge* find(int32_t left, int32_t right) const;
  void merge_short(std::vector<int32_t>& ids) const;
  void merge_long(std::vector<int32_t>& ids) const;
  std::unordered_map<uint64_t, Merge> merges_;
};

// The 256 characters with which GPT-2 writes bytes, as UTF-8: printable ones as themselves, others from U+0100 on.
const std::array<std::string, 256>& byte_characters();
// The bytes of a text in these characters; false if it contains another character.
bool bytes_of_characters(std::string_view text, std::string& bytes);

// Cuts a text into the pieces that a byte-level BPE encodes one by one, as the `pre_tokenizer` of a tokenizer.json
// says.

// A regular expression of a tokenizer.json, which is written for Oniguruma, matched by PCRE2 with JIT. Thread-safe.
class Pattern {
  struct Impl;

 public:
  // UserError, beginning with `place`: no regular expression, one that matches nothing at some place (the empty text),
  // or one with a part that PCRE2 reads differently.
  Pattern(const std::string& pattern, bool literal, const std::string& place);

  // Memory of a thread for matching.
  class Matcher {
   public:
    explicit Matcher(const Pattern& pattern);
    // Finds the first match at or after `from`; false if there is none. UserError: the pattern needs more steps than
    // the limit. REQUIRES: `text` is UTF-8.
    bool find(std::string_view text, size_t from, size_t& begin, size_t& end);

   private:
    struct Memory;
    std::shared_ptr<const Impl> pattern_;
    std::shared_ptr<Memory> memory_;
  };

  // `pattern` in the syntax of PCRE2; UserError as above.
  static std::string translated(const std::string& pattern, const std::string& place);

 private:
  std::shared_ptr<const Impl> impl_;
};

// One step of a pre-tokenizer.
struct PreTokenizerStep {
  enum class Behaviour { isolated, removed, with_previous, with_next };
  std::optional<Pattern> pattern = {};  // none: cuts nothing
  Behaviour behaviour = Behaviour::isolated;
  bool prefix_space = false;  // puts a space before each piece that has none
};

// The memory of a thread.
class PreTokenizer {
 public:
  explicit PreTokenizer(const std::vector<PreTokenizerStep>& steps);
  // Calls piece(text) for each piece of `text`, in order.
  using Visit = std::function<void(std::string_view)>;
  void cut(std::string_view text, const Visit& piece) { cut_from(0, text, piece); }

 private:
  void cut_from(size_t index, std::string_view text, const Visit& piece);
  struct Step {
    PreTokenizerStep rule;
    std::optional<Pattern::Matcher> matcher;
    std::string prefixed;
  };
  std::vector<Step> steps_;
};

// The Unicode version of PCRE2's tables: "14.0.0".
std::string pattern_unicode_version();

}  // namespace lmx::app
