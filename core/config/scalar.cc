// Scalars follow YAML 1.2's core schema, with restrictions where readers disagree: a text with a leading zero, a
// hexadecimal or an octal number is no number here (one reader reads 010 as 8, another as 10). `_` may group digits.
#include <charconv>
#include <cmath>

#include "config/messages.h"

namespace lmx {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Consumes digits with single underscores between them. Returns false if the text does not begin with a digit.
bool skip_digits(std::string_view& text) {
  if (text.empty() || !is_digit(text[0])) return false;
  size_t i = 1;
  while (i < text.size() && (is_digit(text[i]) || (text[i] == '_' && i + 1 < text.size() && is_digit(text[i + 1]))))
    ++i;
  text.remove_prefix(i);
  return true;
}

std::string without_underscores(std::string_view text) {
  std::string plain;
  for (char c : text)
    if (c != '_') plain += c;
  return plain;
}

std::string_view without_sign(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return text;
}

bool looks_like_double(std::string_view text) {
  text = without_sign(text);
  if (text.size() > 1 && text[0] == '0' && (is_digit(text[1]) || text[1] == '_')) return false;
  const bool whole = skip_digits(text);
  bool fraction = false;
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    fraction = skip_digits(text);
  }
  if (!whole && !fraction) return false;
  if (!text.empty() && (text[0] == 'e' || text[0] == 'E')) {
    text = without_sign(text.substr(1));
    if (!skip_digits(text)) return false;
  }
  return text.empty();
}

}  // namespace

std::optional<int64_t> parse_int(std::string_view text) {
  if (!config::looks_like_int(text)) return std::nullopt;
  std::string plain = without_underscores(text);
  if (plain[0] == '+') plain.erase(0, 1);  // from_chars accepts no plus sign
  int64_t value = 0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (error != std::errc() || end != plain.data() + plain.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_double(std::string_view text) {
  const bool negative = !text.empty() && text[0] == '-';
  const std::string_view body = without_sign(text);
  if (body == ".inf" || body == ".Inf" || body == ".INF") return negative ? -INFINITY : INFINITY;
  if (text == ".nan" || text == ".NaN" || text == ".NAN") return NAN;
  if (!looks_like_double(text)) return std::nullopt;
  std::string plain = without_underscores(body);
  double value = 0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (error != std::errc() || end != plain.data() + plain.size()) return std::nullopt;
  return negative ? -value : value;
}

std::optional<bool> parse_bool(std::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}

namespace config {

bool looks_like_int(std::string_view text) {
  text = without_sign(text);
  if (text.size() > 1 && text[0] == '0') return false;
  return skip_digits(text) && text.empty();
}

std::string double_text(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value < 0 ? "-.inf" : ".inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace config

std::string trait_value(double value) {
  return config::double_text(value);
}

}  // namespace lmx
