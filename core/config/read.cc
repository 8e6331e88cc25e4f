#include <re2/re2.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <set>

#include "config/error_collector.h"
#include "config/messages.h"
#include "lmx/config.h"
#include "lmx/error.h"

namespace lmx {

using config::at;
using config::describe_value;
using config::is_missing;
using config::join_path;

namespace {

constexpr const char* kInteger = "an integer";
constexpr const char* kNumber = "a number";

[[noreturn]] void fail_type(const Node& node, const std::string& path, std::string_view expected,
                            std::string_view hint = {}) {
  throw UserError(str(at(node.mark, path), "expected ", expected, ", got ", describe_value(node), hint));
}

constexpr const char* kUnquote =
    ", a text; remove its quotes (an environment variable is a number as ${oc.decode:${oc.env:NAME}})";

// The hint about a number with a comma in place of its point; "" for other texts.
std::string decimal_comma(std::string text) {
  const size_t comma = text.find(',');
  if (comma == std::string::npos) return "";
  text[comma] = '.';
  return parse_double(text) ? "; the decimal point is written '.', as " + text : "";
}

void check_range(const Node& node, const std::string& path, double value, const Range& range) {
  const bool above = range.open_min ? value > range.min : value >= range.min;
  if (above && value <= range.max) return;
  throw UserError(str(at(node.mark, path), "must be ", config::range_text(range), ", got ", node.text));
}

int64_t read_int(const Node& node, const std::string& path, const Range& range) {
  if (node.kind != Node::Kind::scalar) fail_type(node, path, kInteger);
  const auto value = parse_int(node.text);
  if (!value && config::looks_like_int(node.text))
    throw UserError(str(at(node.mark, path), node.text, " does not fit into 64 bits"));
  if (value && node.quoted) fail_type(node, path, kInteger, kUnquote);
  if (!value && parse_double(node.text)) fail_type(node, path, kInteger, "; write it without point and exponent");
  if (!value) fail_type(node, path, kInteger);
  check_range(node, path, static_cast<double>(*value), range);
  constexpr int64_t kMost = int64_t{1} << 53;
  if (*value > kMost || *value < -kMost)
    throw UserError(str(at(node.mark, path), node.text, " is too large: an integer is at most ", kMost, " (2^53)"));
  return *value;
}

double read_double(const Node& node, const std::string& path, const Range& range) {
  if (node.kind != Node::Kind::scalar) fail_type(node, path, kNumber);
  const auto value = parse_double(node.text);
  if (!value || *value != *value || (std::isinf(*value) && !range.infinite))
    fail_type(node, path, kNumber, decimal_comma(node.text));
  if (node.quoted) fail_type(node, path, kNumber, kUnquote);
  check_range(node, path, *value, range);
  return *value;
}

// yes, no, on, off, 1 and 0 are also accepted: if a boolean is expected, they can have no other meaning.
bool read_bool(const Node& node, const std::string& path) {
  if (node.kind == Node::Kind::scalar) {
    std::string word = node.text;
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
    for (const char* yes : {"true", "yes", "on", "y", "1"})
      if (word == yes) return true;
    for (const char* no : {"false", "no", "off", "n", "0"})
      if (word == no) return false;
  }
  fail_type(node, path, "true or false");
}

std::string read_string(const Node& node, const std::string& path) {
  if (node.kind == Node::Kind::null) fail_type(node, path, "a text", "; write '' for an empty one");
  if (node.kind != Node::Kind::scalar) fail_type(node, path, "a text");
  return node.text;
}

std::string read_choice(const Node& node, const std::string& path, const std::vector<std::string>& choices) {
  const std::string given = node.kind == Node::Kind::scalar ? node.text : node.kind == Node::Kind::null ? "null" : "";
  if (std::find(choices.begin(), choices.end(), given) != choices.end()) return given;
  fail_type(node, path, str("one of ", config::join(choices)), did_you_mean(given, choices));
}

// Read the value of a field, or an element of its list.
void read_value(const Node& node, const std::string& path, const Fields::Field& f, int64_t& value) {
  value = read_int(node, path, f.range);
}
void read_value(const Node& node, const std::string& path, const Fields::Field& f, double& value) {
  value = read_double(node, path, f.range);
}
void read_value(const Node& node, const std::string& path, const Fields::Field&, bool& value) {
  value = read_bool(node, path);
}
void read_value(const Node& node, const std::string& path, const Fields::Field& f, std::string& value) {
  value = f.choices ? read_choice(node, path, *f.choices) : read_string(node, path);
}
void read_value(const Node& node, const std::string&, const Fields::Field&, Node& value) {
  value = node;
}
template <class T>
void read_value(const Node& node, const std::string& path, const Fields::Field& f, std::vector<T>& value) {
  constexpr const char* kExpected = std::is_same_v<T, int64_t>  ? "a list of integers such as [1, 2]"
                                    : std::is_same_v<T, double> ? "a list of numbers such as [0.1, 2]"
                                                                : "a list of texts such as [a, b]";
  if (node.kind != Node::Kind::list) fail_type(node, path, kExpected);
  std::vector<T> items(node.items.size());
  for (size_t i = 0; i < items.size(); ++i) read_value(node.items[i], str(path, ".", i), f, items[i]);
  value = std::move(items);
}

struct Missing {
  Mark mark;
  std::string path, help;
};

[[noreturn]] void fail_missing(const std::vector<Missing>& missing) {
  std::vector<std::string> lines;
  for (const Missing& m : missing)
    lines.push_back(str(at(m.mark, m.path), "required, but not given", m.help.empty() ? "" : str(" (", m.help, ")"),
                        "; set ", m.path, "=..."));
  fail_together(lines, "required values are not given");
}

void collect_missing(const Node& node, const std::string& path, std::vector<Missing>& missing) {
  if (is_missing(node)) missing.push_back({node.mark, path, ""});
  for (size_t i = 0; i < node.items.size(); ++i) collect_missing(node.items[i], str(path, ".", i), missing);
  for (const auto& [key, value] : node.entries) collect_missing(value, join_path(path, key), missing);
}

}  // namespace

struct ConfigReader::Impl : Fields {
  // One map of the recipe while its fields are visited.
  struct Level {
    const Node* node;  // null: the recipe does not write this map, and all its fields keep their defaults
    std::string path;
    std::vector<std::string> known;
  };
  struct Unknown {
    std::string place, path, key, hint;
  };

  Impl(const Node& node, std::string path) { push(&node, std::move(path)); }

  void push(const Node* node, std::string path) {
    if (node && node->kind == Node::Kind::null) node = nullptr;
    if (node && is_missing(*node)) {
      missing.push_back({node->mark, path, ""});
      node = nullptr;
    }
    if (node && node->kind != Node::Kind::map)
      throw UserError(str(at(node->mark, path), "expected a map (key: value lines), got ", describe_value(*node)));
    levels.push_back({node, std::move(path), {}});
  }

  // The node of a field; null if the recipe does not give it, so that the field keeps its default.
  const Node* take(const char* name) {
    Level& level = levels.back();
    level.known.emplace_back(name);
    fields.push_back(path_of(name));
    const Node* node = level.node ? level.node->find(name) : nullptr;
    if (!node || !is_missing(*node)) return node;
    missing.push_back({node->mark, path_of(name), ""});
    return nullptr;
  }
  std::string path_of(const char* name) const { return join_path(levels.back().path, name); }

  const Node* take_required(const char* name, const char* help) {
    const size_t before = missing.size();
    const Node* node = take(name);
    if (node) return node;
    if (missing.size() == before) missing.push_back({place(), path_of(name), ""});
    missing.back().help = help;
    return nullptr;
  }
  Mark place() const {  // the place of the innermost map that the recipe writes
    for (auto level = levels.rbegin(); level != levels.rend(); ++level)
      if (level->node) return level->node->mark;
    return {};
  }

  // If only a component's `name` is replaced (model.name=gru), its other keys stay. Returns a hint for a key that
  // another file than that of `name` has given: a group's file, <kind>/NAME.yaml, or a recipe.
  std::string left_by_group(const Level& level, const std::string& key, const Node& value) const {
    const Node* name = level.node->find("name");
    const std::string kind = level.path.substr(0, level.path.find('.'));
    const auto folder = std::filesystem::path(value.mark.file).parent_path().filename();
    if (!name || name->mark.file == value.mark.file) return "";
    const bool similar = !did_you_mean(key, level.known).empty(), given = value.mark.line == 0;  // on the command line
    if (folder != kind) return similar || given ? "" : str("; ~", join_path(level.path, key), " leaves it out");
    return str("; the group ", value.mark.file, " gave it, and ", name->text, " has replaced the group's name: choose ",
               kind, '=', name->text, " if ", kind, '/', name->text, ".yaml exists, or leave the key out (~",
               join_path(level.path, key), ")");
  }

  // Adds the paths below `path` whose last part is `key`.
  static void collect(const Node& map, const std::string& path, const std::string& key, std::set<std::string>& paths) {
    for (const auto& [name, value] : map.entries) {
      if (name == key && !path.empty()) paths.insert(join_path(path, name));
      if (value.kind == Node::Kind::map) collect(value, join_path(path, name), key, paths);
    }
  }

  // A hint for an unknown key of a whole recipe that another part of the recipe has: `lr` is meant to be
  // `optimizer.lr`.
  // "" if no other part has it, or if too many have it.
  std::string other_parts(const std::string& key) const {
    constexpr size_t kMost = 3;
    const Level& whole = levels.front();
    if (!whole.node || !whole.path.empty()) return "";
    std::set<std::string> paths;
    for (const std::string& path : fields)
      if (path == key || path.ends_with('.' + key)) paths.insert(path);
    collect(*whole.node, "", key, paths);
    for (const Unknown& u : unknown) paths.erase(u.path);
    if (paths.empty() || paths.size() > kMost) return "";
    return str(" (did you mean '", config::join({paths.begin(), paths.end()}, "' or '"), "'?)");
  }

  // finish() reports all unknown keys together.
  void note_unknown() {
    const Level& level = levels.back();
    if (!level.node) return;
    const bool component = levels.size() == 1 && !level.path.empty();  // its `name` has selected this reader
    const std::set<std::string> known(level.known.begin(), level.known.end());
    for (const auto& [key, value] : level.node->entries) {
      if (known.contains(key) || (component && key == "name")) continue;
      std::string hint = did_you_mean(key, level.known);
      if (hint.empty())
        hint = level.known.empty() ? " (it has no keys)" : str(" (allowed: ", config::join(level.known), ")");
      unknown.push_back({at(config::key_place(value)), join_path(level.path, key), key,
                         hint + (component ? left_by_group(level, key, value) : "")});
    }
  }

  std::vector<std::string> unknown_keys() const {
    std::vector<std::string> messages;
    for (const Unknown& u : unknown) {
      const std::string other = other_parts(u.key);
      messages.push_back(str(u.place, "unknown key ", u.path, other.empty() ? u.hint : other));
    }
    return messages;
  }

  void visit(const Field& f) override {
    const Node* node = f.required ? take_required(f.name, f.help) : take(f.name);
    if (node) std::visit([&](auto* value) { read_value(*node, path_of(f.name), f, *value); }, f.value);
  }
  void rest(Node& value, const Complete& complete) override {
    Level& level = levels.back();
    const Node map = level.node ? *level.node : Node::map(place());
    Node all = value.kind == Node::Kind::map ? value : Node::map(map.mark);
    for (const auto& [key, given] : map.entries)
      if (std::find(level.known.begin(), level.known.end(), key) == level.known.end()) all.set(key, given);
    value = complete(map, all, level.path);
    for (const auto& [key, given] : map.entries) level.known.push_back(key);
  }
  void enter(const char* name) override {
    const Node* node = levels.back().node ? levels.back().node->find(name) : nullptr;
    levels.back().known.emplace_back(name);
    push(node, path_of(name));
  }
  void leave() override {
    note_unknown();
    levels.pop_back();
  }

  std::vector<Level> levels;
  std::vector<std::string> fields;  // the paths of all fields
  std::vector<Missing> missing;
  std::vector<Unknown> unknown;
};

ConfigReader::ConfigReader(const Node& node, std::string path) : impl_(std::make_unique<Impl>(node, std::move(path))) {}
ConfigReader::~ConfigReader() = default;
Fields& ConfigReader::fields() {
  return *impl_;
}

void ConfigReader::finish() {
  impl_->note_unknown();
  if (!impl_->unknown.empty()) fail_together(impl_->unknown_keys(), "unknown keys");
  if (!impl_->missing.empty()) fail_missing(impl_->missing);
}

void check_missing(const Node& tree) {
  std::vector<Missing> missing;
  collect_missing(tree, "", missing);
  if (!missing.empty()) fail_missing(missing);
}

Fields::~Fields() = default;  // defined here, so that all plugins share one vtable

struct ParamPattern::Compiled {
  explicit Compiled(const std::string& text) : expression(text, RE2::Quiet) {}
  RE2 expression;
};

ParamPattern::ParamPattern(std::string text, std::string place) : text_(std::move(text)), place_(std::move(place)) {
  if (text_.size() > kLongest)
    throw UserError(str(place_, "the pattern '", text_.substr(0, 40), "...' has ", text_.size(),
                        " bytes; a pattern of parameter names has at most ", kLongest));
  compiled_ = std::make_shared<const Compiled>(text_);
  if (!compiled_->expression.ok())
    throw UserError(str(place_, "'", text_, "' is no regular expression: ", compiled_->expression.error()));
}

bool ParamPattern::matches(std::string_view name) const {
  return RE2::PartialMatch(re2::StringPiece(name.data(), name.size()), compiled_->expression);
}

std::vector<std::string> ParamPattern::select(const std::vector<std::string>& names) const {
  std::vector<std::string> found;
  for (const std::string& name : names)
    if (matches(name)) found.push_back(name);
  if (!found.empty()) return found;
  constexpr size_t kShown = 30;
  std::vector<std::string> shown(names.begin(), names.begin() + static_cast<int64_t>(std::min(kShown, names.size())));
  throw UserError(str(place_, "'", text_, "' matches no parameter; there are: ", config::join(shown),
                      names.size() > kShown ? str(" and ", names.size() - kShown, " others") : ""));
}

}  // namespace lmx
