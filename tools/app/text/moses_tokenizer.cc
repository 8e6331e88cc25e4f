// The rules of the tokenizer. Each is a scan that reads one sequence of code points and writes the next. A rule that
// checks neighbouring characters consumes them, like a regular expression: in "a'b'c" the second apostrophe has no left
// letter any more.
#include <algorithm>
#include <array>

#include "app/text/moses.h"
#include "app/text/utf8.h"

namespace lmx::app {
namespace {

using Text = std::u32string;
using Class = bool (*)(char32_t);

bool not_alpha(char32_t c) {
  return !moses::is_alpha(c);
}
bool not_alpha_nor_number(char32_t c) {
  return !moses::is_alpha(c) && !moses::is_number(c);
}
bool not_number(char32_t c) {
  return !moses::is_number(c);
}

Text set_symbols_apart(const Text& in) {
  Text out;
  out.reserve(in.size() * 2);
  for (const char32_t c : in) {
    if (moses::is_alnum(c) || c == ' ' || c == '.' || c == '\'' || c == '`' || c == ',' || c == '-') {
      out.push_back(c);
    } else {
      out.push_back(' ');
      out.push_back(c);
      out.push_back(' ');
    }
  }
  return out;
}

Text split_dashes(const Text& in) {
  Text out;
  out.reserve(in.size() * 2);
  for (size_t i = 0; i < in.size(); ++i) {
    const bool inner =
        in[i] == '-' && i > 0 && i + 1 < in.size() && moses::is_alnum(in[i - 1]) && moses::is_alnum(in[i + 1]);
    if (inner)
      out.append(U" @-@ ");
    else
      out.push_back(in[i]);
  }
  return out;
}

// Makes two or more periods in a row one token.
Text keep_runs_of_points(const Text& in) {
  Text out;
  out.reserve(in.size() + 8);
  for (size_t i = 0; i < in.size();) {
    size_t end = i;
    while (end < in.size() && in[end] == '.') ++end;
    if (end - i < 2) {
      out.push_back(in[i++]);
      continue;
    }
    out.push_back(' ');
    out.append(end - i, moses::kDotOfRun);
    if (end < in.size()) out.push_back(' ');
    i = end;
  }
  return out;
}

// Makes a comma a token, unless it is between numbers.
Text split_commas(const Text& in) {
  Text first;
  first.reserve(in.size() + 8);
  for (size_t i = 0; i < in.size(); ++i) {
    first.push_back(in[i]);
    if (!not_number(in[i]) || i + 1 >= in.size() || in[i + 1] != ',') continue;
    first.append(U" , ");
    ++i;
  }
  Text second;
  second.reserve(first.size() + 8);
  for (size_t i = 0; i < first.size(); ++i) {
    if (first[i] != ',' || i + 1 >= first.size() || !not_number(first[i + 1])) {
      second.push_back(first[i]);
      continue;
    }
    second.append(U" , ");
    second.push_back(first[++i]);
  }
  const size_t n = second.size();
  if (n >= 2 && second[n - 1] == ',' && !not_number(second[n - 2])) {
    second.pop_back();
    second.append(U" , ");
  }
  return second;
}

struct ApostropheRule {
  Class before, after;
  std::u32string_view written;
};

Text split_apostrophes(const Text& in, const ApostropheRule& rule) {
  Text out;
  out.reserve(in.size() + 8);
  for (size_t i = 0; i < in.size();) {
    if (i + 2 < in.size() && in[i + 1] == '\'' && rule.before(in[i]) && rule.after(in[i + 2])) {
      out.push_back(in[i]);
      out.append(rule.written);
      out.push_back(in[i + 2]);
      i += 3;
    } else {
      out.push_back(in[i++]);
    }
  }
  return out;
}

Text split_apostrophes(Text text, const std::string& language) {
  using moses::is_alpha;
  static constexpr auto kIsS = [](char32_t c) { return c == 's'; };
  static constexpr std::array<ApostropheRule, 5> kEnglish{{{not_alpha, not_alpha, U" ' "},
                                                           {not_alpha_nor_number, is_alpha, U" ' "},
                                                           {is_alpha, not_alpha, U" ' "},
                                                           {is_alpha, is_alpha, U" '"},
                                                           {moses::is_number, kIsS, U" '"}}};
  static constexpr std::array<ApostropheRule, 4> kFrench{{{not_alpha, not_alpha, U" ' "},
                                                          {not_alpha, is_alpha, U" ' "},
                                                          {is_alpha, not_alpha, U" ' "},
                                                          {is_alpha, is_alpha, U"' "}}};
  if (text.find(U'\'') == Text::npos) return text;
  if (language == "en") {
    for (const ApostropheRule& rule : kEnglish) text = split_apostrophes(text, rule);
    return text;
  }
  if (language == "fr") {
    for (const ApostropheRule& rule : kFrench) text = split_apostrophes(text, rule);
    return text;
  }
  Text out;
  for (const char32_t c : text) {
    if (c == '\'')
      out.append(U" ' ");
    else
      out.push_back(c);
  }
  return out;
}

// Returns whether the period at the end of words[i] belongs to the word.
bool keeps_point(const std::vector<std::u32string_view>& words, size_t i, const std::string& language) {
  const std::u32string_view word = words[i].substr(0, words[i].size() - 1);
  const bool inner_point = word.find(U'.') != std::u32string_view::npos;
  if (inner_point && std::any_of(word.begin(), word.end(), moses::is_alpha)) return true;
  const bool last = i + 1 == words.size();
  if (!last && moses::is_lower(words[i + 1][0])) return true;
  if (word.size() > 16) return false;
  std::string bytes;
  for (const char32_t c : word) {
    if (c == moses::kDotOfRun) return false;
    append_utf8(bytes, c);
  }
  if (moses::is_nonbreaking(language, bytes)) return true;
  return !last && words[i + 1][0] >= '0' && words[i + 1][0] <= '9' &&
         moses::is_nonbreaking_before_number(language, bytes);
}

// Returns the words separated by one space, with periods at sentence ends as separate tokens.
Text split_points(const Text& in, const std::string& language) {
  const std::vector<std::u32string_view> words = moses::words_of(in);
  Text out;
  out.reserve(in.size() + 8);
  for (size_t i = 0; i < words.size(); ++i) {
    if (i) out.push_back(' ');
    const bool apart = words[i].size() > 1 && words[i].back() == '.' && !keeps_point(words, i, language);
    out.append(apart ? words[i].substr(0, words[i].size() - 1) : words[i]);
    if (apart) out.append(U" .");
  }
  return out;
}

void split_final_point_and_apostrophe(Text& text) {
  if (text.size() < 2 || text[text.size() - 2] != '.' || text.back() != '\'') return;
  text.resize(text.size() - 2);
  text.append(text.empty() || text.back() == ' ' ? U". '" : U" . '");
}

std::u32string_view entity(char32_t c) {
  const auto found = std::find_if(std::rbegin(moses::kEntities), std::rend(moses::kEntities),
                                  [&](const moses::Entity& e) { return e.character == c; });
  return found == std::rend(moses::kEntities) ? std::u32string_view() : found->name;
}

}  // namespace

MosesTokenizer::MosesTokenizer(MosesOptions options) : options_(std::move(options)) {}

std::string MosesTokenizer::tokenize(std::string_view line) const {
  Text text;
  decode_utf8(line, text);
  text = set_symbols_apart(moses::squeezed(text));
  if (options_.aggressive_dashes) text = split_dashes(text);
  text = split_commas(keep_runs_of_points(text));
  text = split_points(split_apostrophes(std::move(text), options_.language), options_.language);
  split_final_point_and_apostrophe(text);
  std::string out;
  out.reserve(text.size() + 16);
  for (const char32_t c : text) {
    const std::u32string_view escaped = options_.escape ? entity(c) : std::u32string_view();
    for (const char32_t e : escaped) append_utf8(out, e);
    if (escaped.empty()) append_utf8(out, c == moses::kDotOfRun ? U'.' : c);
  }
  return out;
}

}  // namespace lmx::app
