#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/sha256.h"
#include "config/messages.h"

namespace lmx {
namespace {

using config::double_text;

// Returns whether some YAML reader (1.1 or 1.2) reads the word as a boolean or as null.
bool is_typed_word(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::array<std::string_view, 15> kWords = {"true", "false", "yes", "no", "on",   "off",   "y",   "n",
                                                       "null", "~",     "???", "<<", ".inf", "-.inf", ".nan"};
  return std::find(kWords.begin(), kWords.end(), text) != kWords.end();
}

// Returns whether lmx or another YAML reader reads this text, without quotes, as something other than a string. Every
// text that starts like a number counts (dates, 0x10, 12:30).
bool reads_as_another_type(const std::string& text) {
  if (text.empty() || is_typed_word(text) || parse_int(text) || parse_double(text)) return true;
  const size_t sign = text[0] == '-' || text[0] == '+' || text[0] == '.' ? 1 : 0;
  if (text.size() <= sign || text[sign] < '0' || text[sign] > '9')
    return text.starts_with("+.") || text.starts_with("..");
  return text.find_first_not_of("0123456789abcdefABCDEFxXoO_.+-:") == std::string::npos;
}

// The code point that begins at `text[i]`, if a YAML reader may reject it or read it as a line end unless it is
// escaped: C0 and C1 controls, U+2028, U+2029, byte order marks, U+FFFE, U+FFFF.
std::optional<char32_t> unprintable(std::string_view text, size_t i) {
  const auto at = [&](size_t k) { return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0u; };
  const unsigned c = at(0);
  if (c < 0x20 || c == 0x7f) return c;
  if (c == 0xC2 && at(1) < 0xA0) return at(1);
  if ((c & 0xF0) != 0xE0) return std::nullopt;
  const char32_t code = (c & 0x0F) << 12 | (at(1) & 0x3F) << 6 | (at(2) & 0x3F);
  const bool listed = code == 0x2028 || code == 0x2029 || code == 0xFEFF || code == 0xFFFE || code == 0xFFFF;
  return listed ? std::optional(code) : std::nullopt;
}

size_t bytes_of(char32_t code) {
  return code < 0x80 ? 1 : code < 0x800 ? 2 : 3;
}

bool has_unprintable(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i)
    if (unprintable(text, i)) return true;
  return false;
}

// The escape sequence of a code point in double quotes, in YAML or JSON.
std::string escaped(char32_t code, bool json) {
  if (code == '\n') return "\\n";
  if (code == '\t') return "\\t";
  if (code == '\r') return "\\r";
  const bool byte = code < 0x100 && !json;
  const char bytes[] = {static_cast<char>(code >> 8), static_cast<char>(code & 0xFF)};
  return (byte ? "\\x" : "\\u") + hexadecimal({bytes + byte, size_t{2} - byte});
}

// Returns whether YAML reads the plain text back as one scalar, in block and in flow style.
bool is_safe_plain(const std::string& text) {
  if (text.empty() || text.front() == ' ' || text.back() == ' ' || text.back() == ':') return false;
  if (has_unprintable(text)) return false;
  if (std::string_view("-?:,[]{}#&*!|>'\"%@`").find(text.front()) != std::string_view::npos) {
    const bool number = text.front() == '-' && (parse_int(text) || parse_double(text));
    if (!number && text != "???") return false;
  }
  if (text.find_first_of(",[]{}") != std::string::npos) return false;
  return text.find(": ") == std::string::npos && text.find(" #") == std::string::npos && !text.starts_with("---") &&
         !text.starts_with("...");
}

std::string quote_single(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? "''" : std::string(1, c);
  return out + "'";
}

std::string quote_double(std::string_view text, bool json) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    if (const auto code = unprintable(text, i)) {
      out += escaped(*code, json);
      i += bytes_of(*code) - 1;
    } else {
      if (text[i] == '"' || text[i] == '\\') out += '\\';
      out += text[i];
    }
  }
  return out + "\"";
}

std::string quote(const std::string& text) {
  return has_unprintable(text) ? quote_double(text, false) : quote_single(text);
}

std::string scalar_yaml(const Node& node, bool in_flow) {
  if (!is_safe_plain(node.text) || (node.quoted && reads_as_another_type(node.text))) return quote(node.text);
  // yaml-cpp fails at `?`, and in some places at `:`, in flow style. `???` has the same meaning in quotes.
  if (in_flow && node.text.find_first_of("?:#") != std::string::npos) return quote(node.text);
  return node.text;
}

std::string key_yaml(const std::string& key) {
  // A key that looks like a number reads back as the same key; words such as `null` do not.
  if (!is_safe_plain(key) || is_typed_word(key) || key == "?" || key.size() > 200) return quote(key);
  return key;
}

bool is_block(const Node& node) {
  if (node.kind == Node::Kind::map) return !node.entries.empty();
  if (node.kind != Node::Kind::list) return false;
  const auto inner = [](const Node& item) {
    return item.kind == Node::Kind::map ? !item.entries.empty() : is_block(item);
  };
  return std::any_of(node.items.begin(), node.items.end(), inner);
}

// A value on the line of its key: scalars, lists without maps in them, and empty containers.
std::string inline_yaml(const Node& node, bool in_flow) {
  switch (node.kind) {
    case Node::Kind::null:
      return "null";
    case Node::Kind::scalar:
      return scalar_yaml(node, in_flow);
    case Node::Kind::map:
      return "{}";
    case Node::Kind::list:
      break;
  }
  std::vector<std::string> parts;
  for (const Node& item : node.items) parts.push_back(inline_yaml(item, true));
  return str("[", config::join(parts), "]");
}

// Writes a block value. `at_line_start` is false directly after "- ", where the first entry needs no indentation.
void write_block(std::string& out, const Node& node, size_t indent, bool at_line_start) {
  const bool is_map = node.kind == Node::Kind::map;
  const size_t n = is_map ? node.entries.size() : node.items.size();
  for (size_t i = 0; i < n; ++i) {
    if (at_line_start || i > 0) out.append(indent, ' ');
    const Node& value = is_map ? node.entries[i].second : node.items[i];
    out += is_map ? key_yaml(node.entries[i].first) + ":" : "-";
    if (!is_block(value)) {
      out += str(" ", inline_yaml(value, false), "\n");
    } else if (is_map) {
      out += "\n";
      write_block(out, value, indent + 2, true);
    } else {
      out += " ";
      write_block(out, value, indent + 2, false);
    }
  }
}

std::string scalar_json(const Node& node) {
  const std::string& text = node.text;
  if (!node.quoted) {
    if (const auto i = parse_int(text)) return std::to_string(*i);
    if (const auto b = parse_bool(text)) return *b ? "true" : "false";
    const auto d = parse_double(text);
    if (d && *d - *d == 0) return double_text(*d);
    if (d) return quote_double(double_text(*d), true);
  }
  return quote_double(text, true);
}

void write_json(std::string& out, const Node& node) {
  switch (node.kind) {
    case Node::Kind::null:
      out += "null";
      return;
    case Node::Kind::scalar:
      out += scalar_json(node);
      return;
    case Node::Kind::list:
      out += "[";
      for (size_t i = 0; i < node.items.size(); ++i) {
        if (i) out += ", ";
        write_json(out, node.items[i]);
      }
      out += "]";
      return;
    case Node::Kind::map:
      out += "{";
      for (size_t i = 0; i < node.entries.size(); ++i) {
        if (i) out += ", ";
        out += quote_double(node.entries[i].first, true) + ": ";
        write_json(out, node.entries[i].second);
      }
      out += "}";
      return;
  }
}

}  // namespace

std::string to_yaml(const Node& node) {
  if (!is_block(node)) return inline_yaml(node, false) + "\n";
  std::string out;
  write_block(out, node, 0, true);
  return out;
}

std::string to_json(const Node& node) {
  std::string out;
  write_json(out, node);
  return out;
}

// Typed configs as a tree with every default, and as a table of fields.

using config::join_path;

namespace config {
namespace {

std::string bound_text(double bound) {
  if (bound == std::floor(bound) && std::abs(bound) < 1e15) return std::to_string(static_cast<int64_t>(bound));
  return double_text(bound);
}

}  // namespace

std::string range_text(const Range& range) {
  const bool low = !std::isinf(range.min), high = !std::isinf(range.max);
  if (low && high)
    return str("in ", range.open_min ? "(" : "[", bound_text(range.min), ", ", bound_text(range.max), "]");
  if (low) return str(range.open_min ? "> " : ">= ", bound_text(range.min));
  if (high) return str("<= ", bound_text(range.max));
  return "";
}

}  // namespace config

namespace {

Node node_of(int64_t value) {
  return Node::scalar(std::to_string(value));
}
Node node_of(double value) {
  return Node::scalar(double_text(value));
}
Node node_of(bool value) {
  return Node::scalar(value ? "true" : "false");
}
Node node_of(const std::string& value) {
  return Node::string(value);
}
Node node_of(const Node& value) {
  return value;
}

template <class T>
Node node_of(const std::vector<T>& values) {
  Node list = Node::list({});
  for (const T& value : values) list.items.push_back(node_of(value));
  return list;
}

Node value_of(const Fields::Field& f) {
  return std::visit([](const auto* value) { return node_of(*value); }, f.value);
}

std::string one_line(const Node& node) {
  if (node.kind == Node::Kind::map || node.kind == Node::Kind::null) return to_json(node);
  std::string text = to_yaml(node);
  text.pop_back();
  return text;
}

}  // namespace

struct ConfigWriter::Impl : Fields {
  void put(const char* name, Node value) { levels.back().second.set(name, std::move(value)); }

  void visit(const Field& f) override { put(f.name, value_of(f)); }
  void rest(Node& value, const Complete&) override {
    for (const auto& [key, given] : value.entries) put(key.c_str(), given);
  }
  void enter(const char* name) override { levels.emplace_back(name, Node::map()); }
  void leave() override {
    auto [name, map] = std::move(levels.back());
    levels.pop_back();
    put(name.c_str(), std::move(map));
  }

  std::vector<std::pair<std::string, Node>> levels{{"", Node::map()}};
};

ConfigWriter::ConfigWriter() : impl_(std::make_unique<Impl>()) {}
ConfigWriter::~ConfigWriter() = default;
Fields& ConfigWriter::fields() {
  return *impl_;
}
Node ConfigWriter::take() {
  return std::exchange(impl_->levels.front().second, Node::map());
}

struct ConfigDescriber::Impl : Fields {
  void visit(const Field& f) override {
    constexpr const char* kTypes[] = {"int",         "float",         "bool",         "text",
                                      "list of int", "list of float", "list of text", "map"};
    rows.push_back({join_path(path, f.name), f.choices ? "choice" : kTypes[f.value.index()],
                    f.required ? "???" : one_line(value_of(f)),
                    f.choices ? "one of " + config::join(*f.choices) : config::range_text(f.range), f.help});
  }
  void rest(Node&, const Complete&) override {}
  void enter(const char* name) override { path = join_path(path, name); }
  void leave() override {
    const size_t dot = path.rfind('.');
    path = dot == std::string::npos ? "" : path.substr(0, dot);
  }

  std::string path;
  std::vector<FieldInfo> rows;
};

ConfigDescriber::ConfigDescriber() : impl_(std::make_unique<Impl>()) {}
ConfigDescriber::~ConfigDescriber() = default;
Fields& ConfigDescriber::fields() {
  return *impl_;
}
std::vector<FieldInfo> ConfigDescriber::take() {
  return std::move(impl_->rows);
}

}  // namespace lmx
