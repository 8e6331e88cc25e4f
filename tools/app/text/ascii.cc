#include "app/text/ascii.h"

#include <unicode/utrans.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "app/text/utf8.h"
#include "lmx/error.h"

namespace lmx::data {
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

}  // namespace lmx::data
