#include <algorithm>
#include <charconv>
#include <cmath>

#include "config/messages.h"

namespace lmx {

std::string to_string(const Mark& mark) {
  if (mark.line == 0) return mark.file;
  return str(mark.file, ":", mark.line, ":", mark.column);
}

namespace {

void collect_overrides(const Node& node, std::vector<std::string>& overrides) {
  const std::string& file = node.mark.file;
  const bool typed = node.mark.line == 0 && !file.empty();
  if (typed && std::find(overrides.begin(), overrides.end(), file) == overrides.end()) overrides.push_back(file);
  for (const Node& item : node.items) collect_overrides(item, overrides);
  for (const auto& entry : node.entries) collect_overrides(entry.second, overrides);
}

}  // namespace

std::string place_of_values(const Node& node, const std::string& path) {
  std::vector<std::string> overrides;
  collect_overrides(node, overrides);
  return overrides.empty() ? config::at(node.mark, "") + path : str(config::join(overrides), ": ", path);
}

std::string place_of_key(const Node& node, const std::string& path, const std::string& key) {
  return config::at(config::mark_of(node, key), config::join_path(path, key));
}

Node::Node() = default;
Node::Node(const Node& other) = default;
Node::Node(Node&& other) noexcept = default;
Node& Node::operator=(const Node& other) = default;
Node& Node::operator=(Node&& other) noexcept = default;
Node::~Node() = default;

Node Node::scalar(std::string text, Mark mark) {
  Node node;
  node.kind = Kind::scalar;
  node.text = std::move(text);
  node.mark = std::move(mark);
  return node;
}

Node Node::string(std::string text, Mark mark) {
  Node node = scalar(std::move(text), std::move(mark));
  node.quoted = true;
  return node;
}

Node Node::list(std::vector<Node> items, Mark mark) {
  Node node;
  node.kind = Kind::list;
  node.items = std::move(items);
  node.mark = std::move(mark);
  return node;
}

Node Node::map(Mark mark) {
  Node node;
  node.kind = Kind::map;
  node.mark = std::move(mark);
  return node;
}

const Node* Node::find(std::string_view key) const {
  for (const auto& [name, value] : entries)
    if (name == key) return &value;
  return nullptr;
}

Node* Node::find(std::string_view key) {
  return const_cast<Node*>(std::as_const(*this).find(key));
}

const Node* Node::at_path(std::string_view path) const {
  const Node* node = this;
  if (path.empty()) return node;
  for (const std::string& part : config::split(path, '.')) {
    if (node->kind == Kind::list) {
      const auto index = parse_int(part);
      if (!index || *index < 0 || static_cast<uint64_t>(*index) >= node->items.size()) return nullptr;
      node = &node->items[static_cast<size_t>(*index)];
    } else {
      node = node->find(part);
      if (!node) return nullptr;
    }
  }
  return node;
}

Node* Node::at_path(std::string_view path) {
  return const_cast<Node*>(std::as_const(*this).at_path(path));
}

Node& Node::set(std::string_view key, Node value) {
  kind = Kind::map;
  if (Node* there = find(key)) return *there = std::move(value);
  return entries.emplace_back(std::string(key), std::move(value)).second;
}

bool Node::erase(std::string_view key) {
  return std::erase_if(entries, [&](const auto& entry) { return entry.first == key; }) > 0;
}

std::vector<std::string> Node::keys() const {
  std::vector<std::string> names;
  names.reserve(entries.size());
  for (const auto& entry : entries) names.push_back(entry.first);
  return names;
}

namespace config {

std::string at(const Mark& mark, std::string_view path) {
  std::string text = mark.file.empty() ? "" : to_string(mark) + ": ";
  // `override 'model.cells=abc'` already names the path, but not the path of a list item or of a map's entry below it.
  const bool said = mark.line == 0 && !path.empty() && mark.file.find(str(path, "=")) != std::string::npos;
  if (!path.empty() && !said) text += str(path, ": ");
  return text;
}

const Mark& mark_of(const Node& map, std::string_view key) {
  const Node* value = map.find(key);
  return value ? value->mark : map.mark;
}

std::string Place::operator()(std::string_view key) const {
  return at(mark_of(map, key), path);
}

const Mark& key_place(const Node& node) {
  return node.key_mark.file.empty() ? node.mark : node.key_mark;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) text += i ? str(separator, parts[i]) : parts[i];
  return text;
}

std::string join_path(std::string_view parent, std::string_view child) {
  if (parent.empty()) return std::string(child);
  if (child.empty()) return std::string(parent);
  return str(parent, ".", child);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != std::string_view::npos; begin = end + 1)
    parts.emplace_back(text.substr(begin, end - begin));
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::string describe_value(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null:
      return "null";
    case Node::Kind::list:
      return "a list";
    case Node::Kind::map:
      return "a map";
    case Node::Kind::scalar:
      break;
  }
  constexpr size_t kShown = 60;  // a whole text block would hide the message
  return node.text.size() <= kShown ? str("'", node.text, "'") : str("'", node.text.substr(0, kShown), "...'");
}

bool is_missing(const Node& node) {
  return node.kind == Node::Kind::scalar && node.text == "???";
}

}  // namespace config

// Scalars follow YAML 1.2's core schema, with restrictions where readers disagree: a text with a leading zero, a
// hexadecimal or an octal number is no number here (one reader reads 010 as 8, another as 10). `_` may group digits.

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
