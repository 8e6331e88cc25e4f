#include <algorithm>
#include <map>

#include "app/text/moses.h"
#include "app/text/utf8.h"

namespace lmx::data {
namespace {

using Word = std::u32string_view;

struct Entity {
  std::u32string_view name;
  char32_t character;
};
// "&bar;", "&bra;" and "&ket;" are from old versions of Moses.
constexpr Entity kEntities[] = {{U"&bar;", '|'}, {U"&#124;", '|'}, {U"&lt;", '<'},   {U"&gt;", '>'},
                                {U"&bra;", '['}, {U"&ket;", ']'},  {U"&quot;", '"'}, {U"&apos;", '\''},
                                {U"&#91;", '['}, {U"&#93;", ']'},  {U"&amp;", '&'}};

std::u32string unescape(std::u32string_view in) {
  std::u32string out;
  out.reserve(in.size());
  for (size_t i = 0; i < in.size();) {
    const auto* found = in[i] != '&' ? std::end(kEntities)
                                     : std::find_if(std::begin(kEntities), std::end(kEntities),
                                                    [&](const Entity& e) { return in.substr(i).starts_with(e.name); });
    if (found == std::end(kEntities)) {
      out.push_back(in[i++]);
    } else {
      out.push_back(found->character);
      i += found->name.size();
    }
  }
  return out;
}

// Replaces " @-@ " by "-", including the spaces on both sides. Of two in a row, the second one stays unchanged.
std::u32string join_dashes(const std::u32string& in) {
  constexpr std::u32string_view kDash = U" @-@ ";
  std::u32string out;
  out.reserve(in.size());
  for (size_t i = 0; i < in.size();) {
    if (in[i] == ' ' && std::u32string_view(in).substr(i).starts_with(kDash)) {
      out.push_back('-');
      i += kDash.size();
    } else {
      out.push_back(in[i++]);
    }
  }
  return out;
}

std::vector<Word> words_of(const std::u32string& text) {
  std::vector<Word> words;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && !is_white_space(text[end])) ++end;
    if (end > at) words.push_back(Word(text).substr(at, end - at));
    at = end + 1;
  }
  return words;
}

bool all_of(Word word, std::u32string_view set) {
  return word.find_first_not_of(set) == Word::npos;
}

bool opens(Word word) {  // currencies and opening brackets
  return std::all_of(word.begin(), word.end(), [](char32_t c) {
    return moses::is_currency(c) || std::u32string_view(U"([{\u00BF\u00A1").find(c) != std::u32string_view::npos;
  });
}

// Writes words one after the other and decides about the spaces between them.
class Joiner {
 public:
  Joiner(std::vector<Word> words, std::string_view language) : words_(std::move(words)), language_(language) {}

  std::u32string join() {
    for (size_t i = 0; i < words_.size(); ++i) place(i);
    return std::move(text_);
  }

 private:
  void add(Word word, bool space_before, bool space_after) {
    if (space_before && !text_.empty() && text_.back() != ' ') text_.push_back(' ');
    text_.append(word);
    space_ = space_after;
  }

  void place(size_t i) {
    const Word word = words_[i];
    const bool french = language_ == "fr";
    if (moses::is_cjk(word[0]) && language_ != "ko") {
      add(word, !(i > 0 && moses::is_cjk(words_[i - 1].back())) && space_, true);
    } else if (opens(word)) {
      add(word, space_, false);
    } else if (all_of(word, U",.?!:;\\%}])")) {
      add(word, french && word.size() == 1 && all_of(word, U"?!:;\\%"), true);
    } else if (language_ == "en" && i > 0 && word[0] == '\'' && word.size() > 1 && moses::is_alpha(word[1])) {
      add(word, false, true);
    } else if ((french || language_ == "it" || language_ == "ga") && i + 1 < words_.size() && word.size() > 1 &&
               word.back() == '\'' && moses::is_alpha(word[word.size() - 2]) && moses::is_alpha(words_[i + 1][0])) {
      add(word, space_, false);
    } else if (all_of(word, U"'\"\u201E\u201C`")) {
      place_quote(i);
    } else {
      add(word, space_, true);
    }
  }

  // Of each kind of quotation mark, the first opens and the second closes.
  void place_quote(size_t i) {
    const Word word = words_[i];
    int& count = quotes_[all_of(word, U"\u201E\u201C") ? U"\"" : std::u32string(word)];
    if (count % 2) {
      add(word, false, true);
      ++count;
    } else if (language_ == "en" && word == U"'" && i > 0 && words_[i - 1].back() == 's') {
      add(word, false, true);  // the Joneses' house
    } else {
      add(word, space_, false);
      ++count;
    }
  }

  std::vector<Word> words_;
  std::string_view language_;
  std::u32string text_;
  std::map<std::u32string, int> quotes_;
  bool space_ = true;  // space before the next word, unless the word decides otherwise
};

}  // namespace

std::string moses_detokenize(std::string_view tokens, const std::string& language) {
  std::u32string text = U" ";
  decode_utf8(tokens, text);
  text.push_back(' ');
  text = unescape(join_dashes(text));
  std::string out;
  for (const char32_t c : Joiner(words_of(text), language).join()) append_utf8(out, c);
  return out;
}

}  // namespace lmx::data
