#include "app/compose/override.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "config/messages.h"

namespace lmx::app {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

[[noreturn]] void fail_cast(const Node& node) {
  throw UserError("cannot take " + config::describe_value(node));
}

std::string cast_int(const Node& node) {
  if (const auto b = parse_bool(node.text)) return *b ? "1" : "0";
  if (const auto i = parse_int(node.text)) return std::to_string(*i);
  const auto d = node.quoted ? std::nullopt : parse_double(node.text);
  constexpr double kLimit = 9.2e18;
  if (!d || !(std::abs(*d) < kLimit)) fail_cast(node);
  return std::to_string(static_cast<int64_t>(*d));
}

std::string cast_float(const Node& node) {
  if (const auto b = parse_bool(node.text)) return *b ? "1.0" : "0.0";
  const auto d = parse_double(typed_scalar(node.text, {}).text);  // 'inf' as well
  if (!d) fail_cast(node);
  return config::double_text(*d);
}

// Writes floats as most languages do: shortest digits, and an exponent only below 1e-4 and from 1e16 on.
std::string float_text(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto write = [&](std::chars_format format) {
    return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr);
  };
  const std::string scientific = write(std::chars_format::scientific);
  const int exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
  if (exponent < -4 || exponent >= 16) return scientific;
  const std::string fixed = write(std::chars_format::fixed);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::string cast_bool(const Node& node) {
  if (const auto b = parse_bool(lower(node.text))) return *b ? "true" : "false";
  const auto d = node.quoted ? std::nullopt : parse_double(node.text);
  if (!d) fail_cast(node);
  return *d != 0 ? "true" : "false";
}

}  // namespace

Node typed_scalar(const std::string& text, const Mark& mark) {
  const std::string low = lower(text);
  if (low == "null") {
    Node node;
    node.mark = mark;
    return node;
  }
  if (low == "true" || low == "false" || text == "???") return Node::scalar(text == "???" ? text : low, mark);
  if (const auto i = parse_int(text)) return Node::scalar(std::to_string(*i), mark);
  if (config::looks_like_int(text)) return Node::scalar(text, mark);  // too large for 64 bits: the reader reports it
  std::string body = low;
  if (body.starts_with("+") || body.starts_with("-")) body.erase(0, 1);
  if (body == "inf") return Node::scalar(low[0] == '-' ? "-.inf" : ".inf", mark);
  if (body == "nan") return Node::scalar(".nan", mark);
  if (body.starts_with(".inf") || body.starts_with(".nan")) return Node::string(text, mark);
  if (parse_double(text)) return Node::scalar(text, mark);
  return Node::string(text, mark);
}

std::string text_of_value(const Node& scalar) {
  if (scalar.quoted) return scalar.text;
  if (const auto i = parse_int(scalar.text)) return std::to_string(*i);
  if (const auto b = parse_bool(scalar.text)) return *b ? "true" : "false";
  const auto d = config::looks_like_int(scalar.text) ? std::nullopt : parse_double(scalar.text);
  return d ? float_text(*d) : scalar.text;
}

Node cast(const std::string& type, const Node& node) {
  Node result = node;
  for (Node& item : result.items) item = cast(type, item);
  for (auto& entry : result.entries) entry.second = cast(type, entry.second);
  if (node.kind == Node::Kind::null) {
    if (type == "str") return Node::string("null", node.mark);
    fail_cast(node);
  }
  if (node.kind != Node::Kind::scalar) return result;
  result.quoted = type == "str";
  if (type == "str") result.text = text_of_value(node);
  if (type == "int") result.text = cast_int(node);
  if (type == "float") result.text = cast_float(node);
  if (type == "bool") result.text = cast_bool(node);
  return result;
}

bool same_value(const Node& a, const Node& b) {
  if (a.kind != b.kind) return false;
  if (a.items.size() != b.items.size() || a.entries.size() != b.entries.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i)
    if (!same_value(a.items[i], b.items[i])) return false;
  for (const auto& [key, value] : a.entries) {
    const Node* other = b.find(key);
    if (!other || !same_value(value, *other)) return false;
  }
  if (a.kind != Node::Kind::scalar || (a.text == b.text && a.quoted == b.quoted)) return true;
  const auto is_text = [](const Node& n) { return n.quoted || (!parse_bool(n.text) && !parse_double(n.text)); };
  if (is_text(a) || is_text(b)) return is_text(a) && is_text(b) && a.text == b.text;
  const auto left = parse_double(a.text), right = parse_double(b.text);
  if (left && right) return *left == *right;
  return !left && !right && parse_bool(a.text) == parse_bool(b.text);
}

}  // namespace lmx::app
