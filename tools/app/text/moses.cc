#include "app/text/moses.h"

#include <algorithm>
#include <map>
#include <span>

#include "app/text/utf8.h"

namespace lmx::app::moses {
namespace {

bool within(char32_t c, char32_t first, char32_t last) {
  return c >= first && c <= last;
}

// Combining marks that only decorate a letter. The rules treat them as separate characters; marks of other scripts are
// vowels.
bool is_decoration(char32_t c) {
  return (within(c, 0x300, 0x36F) && c != 0x345) || within(c, 0x483, 0x487) || within(c, 0x591, 0x5AF) ||
         within(c, 0x1AB0, 0x1AFF) || within(c, 0x1DC0, 0x1DE6) || within(c, 0x1DF5, 0x1DFF) ||
         within(c, 0x20D0, 0x20FF) || within(c, 0xFE00, 0xFE2F);
}

// Raised, lowered and circled small letters, small Roman numerals.
bool is_small_sign(char32_t c) {
  return c == 0xAA || c == 0xBA || within(c, 0x2B0, 0x2B8) || within(c, 0x2C0, 0x2C1) || within(c, 0x2E0, 0x2E4) ||
         c == 0x345 || c == 0x37A || within(c, 0x1D2C, 0x1D6A) || c == 0x1D78 || within(c, 0x1D9B, 0x1DBF) ||
         c == 0x2071 || c == 0x207F || within(c, 0x2090, 0x209C) || within(c, 0x2170, 0x217F) ||
         within(c, 0x24D0, 0x24E9);
}

// Ideographs and syllables: each is a separate unit.
bool is_syllabic(char32_t c) {
  return c == 0x3005 || c == 0x3007 || within(c, 0x3021, 0x302F) || within(c, 0x3038, 0x303B) ||
         within(c, 0x3400, 0x4DBF) || within(c, 0x4E00, 0x9FFF) || within(c, 0xAC00, 0xD7A3) ||
         within(c, 0xF900, 0xFAD9);
}

bool is_wide_alpha(char32_t c) {
  if (c > 0xFFFF || is_syllabic(c)) return c == kDotOfRun;
  switch (category_of(c)) {
    case Category::letter:
    case Category::small_letter:
    case Category::letter_number:
      return true;
    case Category::mark:
      return !is_decoration(c);
    default:
      return within(c, 0x24B6, 0x24E9);  // circled letters
  }
}

// The non-breaking prefixes of Moses (scripts/share/nonbreaking_prefixes of the toolkit, from sacremoses 0.2): facts
// about written English, German and French. Single capitals, German numbers and numerals are rules below. The lists are
// sorted for std::binary_search.
constexpr std::string_view kEnglish[] = {
    "Adj",    "Adm",  "Adv",  "Apr", "Asst", "Aug",  "Bart", "Bldg", "Brig", "Bros", "Capt", "Cmdr", "Col",
    "Comdr",  "Con",  "Corp", "Cpl", "DR",   "Dec",  "Dr",   "Drs",  "Ens",  "Feb",  "Gen",  "Gov",  "Hon",
    "Hosp",   "Hr",   "Insp", "Jan", "Jul",  "Jun",  "Lt",   "MM",   "MR",   "MRS",  "MS",   "Maj",  "Mar",
    "Messrs", "Mlle", "Mme",  "Mr",  "Mrs",  "Ms",   "Msgr", "Nos",  "Nov",  "Nr",   "Oct",  "Op",   "Ord",
    "Pfc",    "Ph",   "Prof", "Pvt", "Rep",  "Reps", "Res",  "Rev",  "Rs",   "Rt",   "Sen",  "Sens", "Sep",
    "Sfc",    "Sgt",  "Sr",   "St",  "Supt", "Surg", "e.g",  "i.e",  "rev",  "v",    "vs"};
constexpr std::string_view kEnglishBeforeNumber[] = {"Art", "No", "pp"};

constexpr std::string_view kGerman[] = {
    "Adj",    "Adm",  "Adv",  "Art",   "Asst",  "BSE",  "Bart", "Bldg",  "Brig", "Bros",  "Buchst", "Ca",    "Capt",
    "Chr",    "Cmdr", "Co",   "Col",   "Comdr", "Con",  "Corp", "Cpl",   "D.h",  "DR",    "Dkr",    "Dr",    "Ens",
    "Gen",    "Gov",  "Hon",  "Hosp",  "I.F",   "Insp", "Lt",   "Ltd",   "MM",   "MR",    "MRS",    "MS",    "Maj",
    "Messrs", "Mio",  "Mlle", "Mme",   "Mr",    "Mrd",  "Mrs",  "Ms",    "Msgr", "MwSt",  "No",     "Nos",   "Nr",
    "Op",     "Ord",  "Pfc",  "Ph",    "Prof",  "Pvt",  "Rep",  "Reps",  "Res",  "Rev",   "Rt",     "SA",    "Sen",
    "Sens",   "Sfc",  "Sgt",  "Sr",    "St",    "Std",  "Supt", "Surg",  "Zt",   "b.A",   "bzgl",   "bzw",   "c.-à-d",
    "ca",     "d.J",  "d.h",  "dergl", "dgl",   "etc",  "evtl", "ff",    "g.U",  "g.g.A", "ggf",    "i.H.v", "jun",
    "k.o",    "m.E",  "o.ä",  "pp",    "s.p.a", "sen",  "sog",  "sogen", "spp",  "u.E",   "u.U",    "u.a",   "u.s.w",
    "u.ä",    "usf",  "usw",  "vgl",   "vs",    "z.B",  "z.T",  "z.Zt",  "zzt"};

constexpr std::string_view kFrench[] = {
    "A.C.N",   "A.M",      "B.P",      "C.N",      "C.N.S", "C.P.I", "C.Q.F.D",     "C.S",     "E.V",   "L.D",
    "LL.AA",   "LL.AA.II", "LL.AA.RR", "LL.AA.SS", "LL.EE", "LL.MM", "LL.MM.II.RR", "MM",      "N.B",   "N.D",
    "N.D.A",   "N.D.L.R",  "N.D.T",    "N.P.A.I",  "N.S",   "NN.SS", "P.S",         "R.-V",    "R.A.S", "R.I.P",
    "R.P",     "S.A",      "S.A.I",    "S.A.R",    "S.A.S", "S.E",   "S.M",         "S.M.I.R", "S.S",   "SS",
    "T.S.V.P", "X.O",      "Z.I",      "al",       "ann",   "apr",   "art",         "auj",     "av",    "boul",
    "c.-à-d",  "ca",       "cf",       "ch.-l",    "chap",  "contr", "dir",         "e.g",     "env",   "etc",
    "ex",      "fasc",     "fig",      "fr",       "fém",   "hab",   "i.e",         "ibid",    "id",    "inf",
    "lib",     "loc.cit",  "masc",     "ms",       "n/réf", "p.c.c", "p.ex",        "p.j",     "pl",    "pp",
    "sec",     "sect",     "sing",     "sq",       "sqq",   "suiv",  "sup",         "suppl",   "tél",   "vb",
    "vol",     "vs",       "éd"};

static_assert(std::is_sorted(std::begin(kEnglish), std::end(kEnglish)));
static_assert(std::is_sorted(std::begin(kGerman), std::end(kGerman)));
static_assert(std::is_sorted(std::begin(kFrench), std::end(kFrench)));

bool has(std::span<const std::string_view> words, std::string_view word) {
  return std::binary_search(words.begin(), words.end(), word);
}

// Returns whether a word is one of i to xx, or I to XX.
bool is_small_numeral(std::string_view word) {
  constexpr std::string_view kNumerals[] = {"i",  "ii",  "iii",  "iv",  "ix",  "v",  "vi",  "vii",  "viii",  "x",
                                            "xi", "xii", "xiii", "xiv", "xix", "xv", "xvi", "xvii", "xviii", "xx"};
  static_assert(std::is_sorted(std::begin(kNumerals), std::end(kNumerals)));
  std::string lower;
  const bool capital = !word.empty() && word[0] < 'a';
  for (const char c : word) {
    if ((c < 'a') != capital) return false;
    lower.push_back(static_cast<char>(c | 0x20));
  }
  return has(kNumerals, lower);
}

// Returns whether a word is 1 to 99 without a leading zero: the day of a German date.
bool is_day(std::string_view word) {
  return (word.size() == 1 || word.size() == 2) && word[0] >= '1' && word[0] <= '9' && word.back() >= '0' &&
         word.back() <= '9';
}

bool is_letter(std::string_view word, char first, char last) {
  return word.size() == 1 && word[0] >= first && word[0] <= last;
}

}  // namespace

bool is_alpha(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return is_wide_alpha(c);
}

bool is_alnum(char32_t c) {
  if (c < 0x80) return is_alpha(c) || (c >= '0' && c <= '9');
  return is_wide_alpha(c) || (c <= 0xFFFF && category_of(c) == Category::digit);
}

bool is_number(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  if (c > 0xFFFF) return false;
  const Category kind = category_of(c);
  return kind == Category::digit || kind == Category::other_number || kind == Category::letter_number;
}

bool is_lower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  if (c == kDotOfRun || within(c, 0x10D0, 0x10FF)) return false;  // Georgian has lower case letters only since 2018
  return category_of(c) == Category::small_letter || is_small_sign(c);
}

bool is_currency(char32_t c) {
  return c == '$' || (c >= 0x80 && c <= 0xFFFF && category_of(c) == Category::currency);
}

bool is_cjk(char32_t c) {
  return within(c, 0x1100, 0x11FF) || within(c, 0x2E80, 0xA4CF) || within(c, 0xA840, 0xA87F) ||
         within(c, 0xAC00, 0xD7AF) || within(c, 0xF900, 0xFAFF) || within(c, 0xFE30, 0xFE4F) ||
         within(c, 0xFF65, 0xFFDC) || within(c, 0x17000, 0x18AFF) || within(c, 0x1B000, 0x1B12F) ||
         within(c, 0x1B170, 0x1B2FF) || within(c, 0x20000, 0x2FFFF);
}

bool is_nonbreaking(std::string_view language, std::string_view word) {
  const bool capital = is_letter(word, 'A', 'Z');
  if (language == "de")
    return capital || is_letter(word, 'a', 'z') || is_day(word) || is_small_numeral(word) || has(kGerman, word);
  if (language == "fr") return capital || is_letter(word, 'b', 'z') || has(kFrench, word);
  return capital || has(kEnglish, word);
}

bool is_nonbreaking_before_number(std::string_view language, std::string_view word) {
  return language != "de" && language != "fr" && has(kEnglishBeforeNumber, word);
}

std::u32string squeezed(std::u32string_view text) {
  std::u32string out;
  out.reserve(text.size());
  bool space = false;
  for (const char32_t c : text) {
    if (is_white_space(c)) {
      space = true;
    } else if (c > 0x1F) {
      if (space && !out.empty()) out.push_back(' ');
      space = false;
      out.push_back(c);
    }
  }
  return out;
}

std::vector<std::u32string_view> words_of(std::u32string_view text) {
  std::vector<std::u32string_view> words;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && !is_white_space(text[end])) ++end;
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

}  // namespace lmx::app::moses

namespace lmx::app {
namespace {

using Word = std::u32string_view;

using moses::Entity, moses::kEntities;

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
  for (const char32_t c : Joiner(moses::words_of(text), language).join()) append_utf8(out, c);
  return out;
}

}  // namespace lmx::app
