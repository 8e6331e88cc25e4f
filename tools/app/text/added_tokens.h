// Tokens that a tokenizer.json adds to its model, and finds in text as they are.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/text/utf8.h"

namespace lmx::data {

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

}  // namespace lmx::data
