#include "app/text/cleaner.h"

#include <unicode/utrans.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "app/text/utf8.h"
#include "lmx/error.h"

namespace lmx::app {

Cleaner::Cleaner(bool puri) {
  if (puri) ascii_.emplace();
}

std::string_view Cleaner::clean(std::string_view text) {
  if (!ascii_) return text;
  const std::string plain = unescape_html(ascii_->fold(without_tags(text)));
  out_ = "\n ";
  for (const std::string& word : split_words(plain)) {
    out_ += word;
    out_ += ' ';
  }
  return out_.size() == 2 ? std::string_view() : std::string_view(out_);
}

namespace {

struct Sign {
  char32_t code;
  const char* ascii;
};
// Signs for which ICU has no ASCII form, or another one than unidecode. In order of their codes.
constexpr auto kSigns = std::to_array<Sign>({
    {0xA2, "C/"},      {0xA3, "PS"},      {0xA4, "$?"},      {0xA5, "Y="},      {0xA6, "|"},       {0xA7, "SS"},
    {0xA8, "\""},      {0xA9, "(c)"},     {0xAC, "!"},       {0xAD, ""},        {0xAE, "(r)"},     {0xAF, "-"},
    {0xB0, "deg"},     {0xB1, "+-"},      {0xB4, "'"},       {0xB5, "u"},       {0xB6, "P"},       {0xB7, "*"},
    {0xB8, ","},       {0xD7, "x"},       {0xDE, "Th"},      {0x14A, "NG"},     {0x14B, "ng"},     {0x200B, " "},
    {0x2014, "--"},    {0x2015, "--"},    {0x2017, "_"},     {0x2020, "+"},     {0x2021, "++"},    {0x2022, "*"},
    {0x2027, "."},     {0x2028, "\n"},    {0x2029, "\n\n"},  {0x2030, "%0"},    {0x2033, "''"},    {0x2034, "'''"},
    {0x2035, "`"},     {0x203B, "*"},     {0x203D, "!?"},    {0x203E, "-"},     {0x2043, "--"},    {0x2052, "%"},
    {0x2053, "~"},     {0x20A9, "W"},     {0x20AA, "NS"},    {0x20AC, "EUR"},   {0x20BD, "R"},     {0x20BF, "BTC"},
    {0x2103, "degC"},  {0x2109, "degF"},  {0x2116, "No. "},  {0x2117, "(p)"},   {0x2120, "(sm)"},  {0x2122, "(tm)"},
    {0x2126, "ohm"},   {0x2153, " 1/3 "}, {0x2154, " 2/3 "}, {0x215B, " 1/8 "}, {0x215C, " 3/8 "}, {0x215D, " 5/8 "},
    {0x215E, " 7/8 "}, {0x2190, "-"},     {0x2191, "|"},     {0x2192, "-"},     {0x2193, "|"},     {0x2264, "<="},
    {0x2265, ">="},    {0x2500, "-"},     {0x2502, "|"},     {0x3001, ", "},    {0x3002, ". "},    {0x300C, "["},
    {0x300D, "] "},    {0x300E, "{"},     {0x300F, "} "},    {0x3010, "[("},    {0x3011, ")] "},
});
static_assert(std::is_sorted(kSigns.begin(), kSigns.end(),
                             [](const Sign& a, const Sign& b) { return a.code < b.code; }));

bool is_han(char32_t c) {
  return (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x4E00 && c <= 0x9FFF);
}

// Returns the ASCII characters in Unicode's compatibility decomposition of `c`.
std::string ascii_of_parts(char32_t c) {
  std::array<utf8proc_int32_t, 32> parts{};
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), parts.size(),
                                         static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT), nullptr);
  std::string out;
  for (utf8proc_ssize_t i = 0; i < std::min<utf8proc_ssize_t>(n, parts.size()); ++i)
    if (parts[static_cast<size_t>(i)] < 0x80) out.push_back(static_cast<char>(parts[static_cast<size_t>(i)]));
  return out;
}

}  // namespace

struct AsciiFolder::Impl {
  UTransliterator* icu = nullptr;
  std::unordered_map<char32_t, std::string> known;

  Impl() {
    UErrorCode error = U_ZERO_ERROR;
    icu = utrans_openU(u"Any-Latin; Latin-ASCII", -1, UTRANS_FORWARD, nullptr, 0, nullptr, &error);
    if (U_FAILURE(error)) throw RunError(str("[data] ICU cannot transliterate to ASCII: ", u_errorName(error)));
  }
  ~Impl() { utrans_close(icu); }
  std::string by_icu(char32_t c) const;
  std::string look_up(char32_t c) const;
};

std::string AsciiFolder::Impl::by_icu(char32_t c) const {
  std::array<UChar, 64> text{};
  int32_t length = 0, limit = 0;
  U16_APPEND_UNSAFE(text.data(), length, static_cast<UChar32>(c));
  limit = length;
  UErrorCode error = U_ZERO_ERROR;
  utrans_transUChars(icu, text.data(), &length, static_cast<int32_t>(text.size()), 0, &limit, &error);
  std::string out;
  if (U_FAILURE(error)) return out;
  for (int32_t i = 0; i < length; ++i)
    if (text[static_cast<size_t>(i)] < 0x80) out.push_back(static_cast<char>(text[static_cast<size_t>(i)]));
  return out;
}

std::string AsciiFolder::Impl::look_up(char32_t c) const {
  const auto* sign =
      std::lower_bound(kSigns.begin(), kSigns.end(), c, [](const Sign& s, char32_t code) { return s.code < code; });
  if (sign != kSigns.end() && sign->code == c) return sign->ascii;
  std::string out = by_icu(c);
  if (out.empty()) return ascii_of_parts(c);
  if (is_han(c)) {  // Chinese syllables are separated: "Bei Jing "
    if (out[0] >= 'a' && out[0] <= 'z') out[0] = static_cast<char>(out[0] - 'a' + 'A');
    out += ' ';
  }
  return out;
}

AsciiFolder::AsciiFolder() : impl_(std::make_unique<Impl>()) {}
AsciiFolder::~AsciiFolder() = default;
AsciiFolder::AsciiFolder(AsciiFolder&&) noexcept = default;

std::string AsciiFolder::fold(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::u32string codes;
  while (!text.empty()) {
    size_t ascii = 0;
    while (ascii < text.size() && static_cast<unsigned char>(text[ascii]) < 0x80) ++ascii;
    out += text.substr(0, ascii);
    text.remove_prefix(ascii);
    size_t wide = 0;
    while (wide < text.size() && static_cast<unsigned char>(text[wide]) >= 0x80) ++wide;
    for (std::string_view rest = text.substr(0, wide); !rest.empty();) {
      codes.clear();
      const size_t bad = decode_utf8(rest, codes);
      for (const char32_t c : codes) {
        auto found = impl_->known.find(c);
        if (found == impl_->known.end()) found = impl_->known.emplace(c, impl_->look_up(c)).first;
        out += found->second;
      }
      rest.remove_prefix(bad == kValidUtf8 ? rest.size() : bad + 1);
    }
    text.remove_prefix(wide);
  }
  return out;
}

namespace {

using Names = std::map<std::string, char32_t, std::less<>>;

// Names of U+00A0 to U+00FF, in order. HTML also accepts them without a semicolon.
constexpr const char* kLatin1 =
    "nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 sup3 "
    "acute micro para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc Atilde "
    "Auml Aring AElig Ccedil Egrave Eacute Ecirc Euml Igrave Iacute Icirc Iuml ETH Ntilde Ograve Oacute Ocirc "
    "Otilde Ouml times Oslash Ugrave Uacute Ucirc Uuml Yacute THORN szlig agrave aacute acirc atilde auml "
    "aring aelig ccedil egrave eacute ecirc euml igrave iacute icirc iuml eth ntilde ograve oacute ocirc "
    "otilde ouml divide oslash ugrave uacute ucirc uuml yacute thorn yuml ";

struct Name {
  const char* name;
  char32_t code;
};
constexpr Name kOthers[] = {
    {"OElig", 0x152},   {"oelig", 0x153},    {"Scaron", 0x160},   {"scaron", 0x161},  {"Yuml", 0x178},
    {"fnof", 0x192},    {"circ", 0x2C6},     {"tilde", 0x2DC},    {"Alpha", 0x391},   {"Beta", 0x392},
    {"Gamma", 0x393},   {"Delta", 0x394},    {"Epsilon", 0x395},  {"Zeta", 0x396},    {"Eta", 0x397},
    {"Theta", 0x398},   {"Iota", 0x399},     {"Kappa", 0x39A},    {"Lambda", 0x39B},  {"Mu", 0x39C},
    {"Nu", 0x39D},      {"Xi", 0x39E},       {"Omicron", 0x39F},  {"Pi", 0x3A0},      {"Rho", 0x3A1},
    {"Sigma", 0x3A3},   {"Tau", 0x3A4},      {"Upsilon", 0x3A5},  {"Phi", 0x3A6},     {"Chi", 0x3A7},
    {"Psi", 0x3A8},     {"Omega", 0x3A9},    {"alpha", 0x3B1},    {"beta", 0x3B2},    {"gamma", 0x3B3},
    {"delta", 0x3B4},   {"epsilon", 0x3B5},  {"zeta", 0x3B6},     {"eta", 0x3B7},     {"theta", 0x3B8},
    {"iota", 0x3B9},    {"kappa", 0x3BA},    {"lambda", 0x3BB},   {"mu", 0x3BC},      {"nu", 0x3BD},
    {"xi", 0x3BE},      {"omicron", 0x3BF},  {"pi", 0x3C0},       {"rho", 0x3C1},     {"sigmaf", 0x3C2},
    {"sigma", 0x3C3},   {"tau", 0x3C4},      {"upsilon", 0x3C5},  {"phi", 0x3C6},     {"chi", 0x3C7},
    {"psi", 0x3C8},     {"omega", 0x3C9},    {"thetasym", 0x3D1}, {"upsih", 0x3D2},   {"piv", 0x3D6},
    {"ensp", 0x2002},   {"emsp", 0x2003},    {"thinsp", 0x2009},  {"zwnj", 0x200C},   {"zwj", 0x200D},
    {"lrm", 0x200E},    {"rlm", 0x200F},     {"ndash", 0x2013},   {"mdash", 0x2014},  {"lsquo", 0x2018},
    {"rsquo", 0x2019},  {"sbquo", 0x201A},   {"ldquo", 0x201C},   {"rdquo", 0x201D},  {"bdquo", 0x201E},
    {"dagger", 0x2020}, {"Dagger", 0x2021},  {"bull", 0x2022},    {"hellip", 0x2026}, {"permil", 0x2030},
    {"prime", 0x2032},  {"Prime", 0x2033},   {"lsaquo", 0x2039},  {"rsaquo", 0x203A}, {"oline", 0x203E},
    {"frasl", 0x2044},  {"euro", 0x20AC},    {"image", 0x2111},   {"weierp", 0x2118}, {"real", 0x211C},
    {"trade", 0x2122},  {"alefsym", 0x2135}, {"larr", 0x2190},    {"uarr", 0x2191},   {"rarr", 0x2192},
    {"darr", 0x2193},   {"harr", 0x2194},    {"crarr", 0x21B5},   {"lArr", 0x21D0},   {"uArr", 0x21D1},
    {"rArr", 0x21D2},   {"dArr", 0x21D3},    {"hArr", 0x21D4},    {"forall", 0x2200}, {"part", 0x2202},
    {"exist", 0x2203},  {"empty", 0x2205},   {"nabla", 0x2207},   {"isin", 0x2208},   {"notin", 0x2209},
    {"ni", 0x220B},     {"prod", 0x220F},    {"sum", 0x2211},     {"minus", 0x2212},  {"lowast", 0x2217},
    {"radic", 0x221A},  {"prop", 0x221D},    {"infin", 0x221E},   {"ang", 0x2220},    {"and", 0x2227},
    {"or", 0x2228},     {"cap", 0x2229},     {"cup", 0x222A},     {"int", 0x222B},    {"there4", 0x2234},
    {"sim", 0x223C},    {"cong", 0x2245},    {"asymp", 0x2248},   {"ne", 0x2260},     {"equiv", 0x2261},
    {"le", 0x2264},     {"ge", 0x2265},      {"sub", 0x2282},     {"sup", 0x2283},    {"nsub", 0x2284},
    {"sube", 0x2286},   {"supe", 0x2287},    {"oplus", 0x2295},   {"otimes", 0x2297}, {"perp", 0x22A5},
    {"sdot", 0x22C5},   {"lceil", 0x2308},   {"rceil", 0x2309},   {"lfloor", 0x230A}, {"rfloor", 0x230B},
    {"lang", 0x27E8},   {"rang", 0x27E9},    {"loz", 0x25CA},     {"spades", 0x2660}, {"clubs", 0x2663},
    {"hearts", 0x2665}, {"diams", 0x2666},
};

// Browsers decode &#128; to &#159; as Windows-1252. 0: no character.
constexpr std::array<char32_t, 32> kWindows{0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021,
                                            0x2C6,  0x2030, 0x160,  0x2039, 0x152,  0x8D,   0x17D,  0x8F,
                                            0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                            0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};

// Names that are valid without a semicolon.
const Names& short_names() {
  static const Names names = [] {
    Names all{{"amp", '&'}, {"lt", '<'}, {"gt", '>'},   {"quot", '"'},  {"AMP", '&'},
              {"LT", '<'},  {"GT", '>'}, {"QUOT", '"'}, {"COPY", 0xA9}, {"REG", 0xAE}};
    char32_t code = 0xA0;
    for (const std::string& name : split_words(kLatin1)) all.emplace(name, code++);
    return all;
  }();
  return names;
}

const Names& names() {
  static const Names names = [] {
    Names all = short_names();
    all.emplace("apos", '\'');
    for (const Name& n : kOthers) all.emplace(n.name, n.code);
    return all;
  }();
  return names;
}

// Returns the character with this number; Unicode's replacement character if the number is invalid; "" for
// control characters and non-characters.
std::string of_number(int64_t number) {
  std::string out;
  if (number == 0 || number > 0x10FFFF || (number >= 0xD800 && number <= 0xDFFF)) {
    append_utf8(out, 0xFFFD);
  } else if (number >= 0x80 && number <= 0x9F) {
    append_utf8(out, kWindows[static_cast<size_t>(number - 0x80)]);
  } else if (number == '\t' || number == '\n' || number == '\f' || number == '\r' ||
             (number >= 0x20 && number != 0x7F)) {
    if ((number & 0xFFFE) != 0xFFFE && !(number >= 0xFDD0 && number <= 0xFDEF))
      append_utf8(out, static_cast<char32_t>(number));
  }
  return out;
}

struct Reference {
  std::string text;
  size_t length = 0;  // bytes that it replaces, after the &; 0: no reference
};

// `text` begins after "&#".
Reference numeric(std::string_view text) {
  const bool hex = text.starts_with('x') || text.starts_with('X');
  size_t at = hex;
  int64_t number = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    const int digit = c >= '0' && c <= '9'          ? c - '0'
                      : hex && c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : hex && c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                    : -1;
    if (digit < 0) break;
    number = std::min<int64_t>(number * (hex ? 16 : 10) + digit, 0x110000);
  }
  if (at == static_cast<size_t>(hex)) return {};
  return {of_number(number), 1 + at + (at < text.size() && text[at] == ';')};
}

// `text` begins after "&".
Reference named(std::string_view text) {
  constexpr size_t kLongest = 32;
  const size_t end = std::min(text.find_first_of("\t\n\f <&#;"), std::min(text.size(), kLongest));
  Reference found;
  const auto take = [&](const Names& from, std::string_view name, size_t length) {
    const auto it = from.find(name);
    if (it == from.end()) return false;
    append_utf8(found.text, it->second);
    found.length = length;
    return true;
  };
  if (end < text.size() && text[end] == ';' && take(names(), text.substr(0, end), end + 1)) return found;
  for (size_t n = end; n > 1; --n)
    if (take(short_names(), text.substr(0, n), n)) return found;
  return found;
}

}  // namespace

std::string without_tags(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t open = std::min(text.find('<', at), text.size());
    out += text.substr(at, open - at);
    if (open == text.size()) break;
    const size_t close = text.find_first_of(">\n", open);
    const bool tag = close != std::string_view::npos && text[close] == '>';
    out += tag ? ' ' : '<';
    at = tag ? close + 1 : open + 1;
  }
  return out;
}

std::string unescape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t sign = std::min(text.find('&', at), text.size());
    out += text.substr(at, sign - at);
    if (sign == text.size()) break;
    const std::string_view rest = text.substr(sign + 1);
    const Reference r = rest.starts_with('#') ? numeric(rest.substr(1)) : named(rest);
    out += r.length ? r.text : "&";
    at = sign + 1 + r.length;
  }
  return out;
}

}  // namespace lmx::app
