// The rules of mteval-v13a and v14 are regular expressions that are applied to the line one after the other. Each pass
// below is one of them. A match consumes its characters: the next match begins after it.
#include "app/scores/bleu.h"

#include <algorithm>

#include "app/text/utf8.h"
#include "config/messages.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

using Words = std::vector<std::string>;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_point(char c) {
  return c == '.' || c == ',';
}
// [{-~[-` -&(-+:-@/]: ASCII's punctuation except ' , - .
bool stands_alone(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
         (c >= ':' && c <= '@') || c == '/';
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

std::string pass_marks(const std::string& text) {
  std::string out;
  for (const char c : text) stands_alone(c) ? out.append({' ', c, ' '}) : out.append(1, c);
  return out;
}

// Replaces two adjacent characters that `first` and `second` accept by before + first + between + second + after.
// Comparing bytes is sufficient, because no rule distinguishes the bytes of one character.
struct Pair {
  bool (*first)(char);
  bool (*second)(char);
  std::string_view before, between, after;
};

std::string pass_pairs(const std::string& text, const Pair& rule) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && rule.first(text[i]) && rule.second(text[i + 1])) {
      out.append(rule.before).append(1, text[i]).append(rule.between).append(1, text[i + 1]).append(rule.after);
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

Words western(const std::string& text) {
  const auto other = [](char c) { return !is_digit(c); };
  const auto dash = [](char c) { return c == '-'; };
  std::string line = pass_marks(text);
  line = pass_pairs(line, {other, is_point, "", " ", " "});
  line = pass_pairs(line, {is_point, other, " ", " ", ""});
  line = pass_pairs(line, {is_digit, dash, "", " ", " "});
  return split_words(line);
}

Words tokenize_13a(std::string_view text) {
  std::string line(text);
  replace_all(line, "<skipped>", "");
  replace_all(line, "&quot;", "\"");
  replace_all(line, "&amp;", "&");
  replace_all(line, "&lt;", "<");
  replace_all(line, "&gt;", ">");
  return western(" " + line + " ");
}

enum class Class { number, punctuation, symbol, other };

Class class_of(char32_t c) {
  switch (category_of(c)) {
    case Category::digit:
    case Category::letter_number:
    case Category::other_number:
      return Class::number;
    case Category::punctuation:
      return Class::punctuation;
    case Category::currency:
    case Category::symbol:
      return Class::symbol;
    default:
      return Class::other;
  }
}

Words tokenize_intl(std::string_view text) {
  using Points = std::u32string;
  const auto number = [](char32_t c) { return class_of(c) == Class::number; };
  const auto punctuation = [](char32_t c) { return class_of(c) == Class::punctuation; };
  const Points line = code_points(text);
  Points after;  // (\P{N})(\p{P}) becomes \1 \2 and a space
  for (size_t i = 0; i < line.size(); ++i) {
    after.push_back(line[i]);
    if (i + 1 >= line.size() || number(line[i]) || !punctuation(line[i + 1])) continue;
    after.insert(after.end(), {U' ', line[++i], U' '});
  }
  Points before;  // (\p{P})(\P{N}) becomes a space, \1 \2
  for (size_t i = 0; i < after.size(); ++i) {
    const bool found = i + 1 < after.size() && punctuation(after[i]) && !number(after[i + 1]);
    if (found) before.insert(before.end(), {U' ', after[i], U' ', after[i + 1]});
    if (!found) before.push_back(after[i]);
    i += found;
  }
  std::string out;
  for (const char32_t c : before) {
    const bool alone = class_of(c) == Class::symbol;
    if (alone) out += ' ';
    append_utf8(out, c);
    if (alone) out += ' ';
  }
  return split_words(out);
}

Words tokenize_char(std::string_view text) {
  Words words;
  for (const char32_t c : code_points(text)) {
    if (is_white_space(c)) continue;
    words.emplace_back();
    append_utf8(words.back(), c);
  }
  return words;
}

// sacreBLEU's table of characters that are separate words. It writes the entries of the supplementary planes with four
// hexadecimal digits, so that they mean U+2001 to U+2A6D and U+2F81 to U+2FA1. Equal scores require the same ranges
// here.
bool is_han(char32_t c) {
  constexpr char32_t kRanges[][2] = {
      {0x3400, 0x4DB5}, {0x4E00, 0x9FA5}, {0x9FA6, 0x9FBB}, {0xF900, 0xFA2D}, {0xFA30, 0xFA6A}, {0xFA70, 0xFAD9},
      {0x2001, 0x2A6D}, {0x2F81, 0x2FA1}, {0xFF00, 0xFFEF}, {0x2E80, 0x2EFF}, {0x3000, 0x303F}, {0x31C0, 0x31EF},
      {0x2F00, 0x2FDF}, {0x2FF0, 0x2FFF}, {0x3100, 0x312F}, {0x31A0, 0x31BF}, {0xFE10, 0xFE1F}, {0xFE30, 0xFE4F},
      {0x2600, 0x26FF}, {0x2700, 0x27BF}, {0x3200, 0x32FF}, {0x3300, 0x33FF}};
  return std::any_of(std::begin(kRanges), std::end(kRanges), [&](const auto& r) { return c >= r[0] && c <= r[1]; });
}

Words tokenize_zh(std::string_view text) {
  std::u32string line = code_points(trim_end(text));
  line.erase(line.begin(), std::find_if_not(line.begin(), line.end(), is_white_space));
  std::string out;
  for (const char32_t c : line) {
    const bool alone = is_han(c);
    if (alone) out += ' ';
    append_utf8(out, c);
    if (alone) out += ' ';
  }
  return western(out);
}

struct Named {
  const char* name;
  ScoreTokenizer tokenize;
};
constexpr Named kTokenizers[] = {{"13a", tokenize_13a},
                                 {"intl", tokenize_intl},
                                 {"char", tokenize_char},
                                 {"zh", tokenize_zh},
                                 {"none", split_words}};

}  // namespace

std::vector<std::string> score_tokenizer_names() {
  std::vector<std::string> names;
  for (const Named& t : kTokenizers) names.emplace_back(t.name);
  return names;
}

ScoreTokenizer find_score_tokenizer(const std::string& name) {
  for (const Named& t : kTokenizers)
    if (name == t.name) return t.tokenize;
  const std::vector<std::string> names = score_tokenizer_names();
  throw UserError(
      str("[bleu] no tokenizer '", name, "'", did_you_mean(name, names), "; there are ", config::join(names)));
}

std::string split_compounds(std::string_view line) {
  const auto black = [&](size_t i) { return line[i] < 0 || !is_white_space(static_cast<unsigned char>(line[i])); };
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    out += line[i];
    if (i + 2 >= line.size() || line[i + 1] != '-' || !black(i) || !black(i + 2)) continue;
    out.append(" ##AT##-##AT## ").append(1, line[i + 2]);
    i += 2;
  }
  return out;
}

}  // namespace lmx::app
