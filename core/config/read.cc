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
  if (!value || *value != *value || (std::isinf(*value) && !range.infinite)) fail_type(node, path, kNumber);
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

template <class T, class Read>
void read_list(const Node& node, const std::string& path, std::vector<T>& value, const char* expected,
               const Read& read) {
  if (node.kind != Node::Kind::list) fail_type(node, path, expected);
  std::vector<T> items;
  for (size_t i = 0; i < node.items.size(); ++i) items.push_back(read(node.items[i], str(path, ".", i)));
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
      unknown.push_back(str(at(config::key_place(value)), "unknown key ", join_path(level.path, key), hint,
                            component ? left_by_group(level, key, value) : ""));
    }
  }

  void field(const char* name, int64_t& value, const char*, Range range) override {
    if (const Node* node = take(name)) value = read_int(*node, path_of(name), range);
  }
  void field(const char* name, double& value, const char*, Range range) override {
    if (const Node* node = take(name)) value = read_double(*node, path_of(name), range);
  }
  void field(const char* name, bool& value, const char*) override {
    if (const Node* node = take(name)) value = read_bool(*node, path_of(name));
  }
  void field(const char* name, std::string& value, const char*) override {
    if (const Node* node = take(name)) value = read_string(*node, path_of(name));
  }
  void required(const char* name, std::string& value, const char* help) override {
    if (const Node* node = take_required(name, help)) value = read_string(*node, path_of(name));
  }
  void required(const char* name, int64_t& value, const char* help, Range range) override {
    if (const Node* node = take_required(name, help)) value = read_int(*node, path_of(name), range);
  }
  void choice(const char* name, std::string& value, const std::vector<std::string>& allowed, const char*) override {
    const Node* node = take(name);
    if (!node) return;
    const std::string given = node->kind == Node::Kind::scalar ? node->text
                              : node->kind == Node::Kind::null ? "null"
                                                               : "";
    for (const std::string& option : allowed)
      if (given == option) return void(value = option);
    fail_type(*node, path_of(name), str("one of ", config::join(allowed)), did_you_mean(given, allowed));
  }
  void field(const char* name, std::vector<int64_t>& value, const char*, Range range) override {
    if (const Node* node = take(name))
      read_list(*node, path_of(name), value, "a list of integers such as [1, 2]",
                [&](const Node& item, const std::string& path) { return read_int(item, path, range); });
  }
  void field(const char* name, std::vector<double>& value, const char*, Range range) override {
    if (const Node* node = take(name))
      read_list(*node, path_of(name), value, "a list of numbers such as [0.1, 2]",
                [&](const Node& item, const std::string& path) { return read_double(item, path, range); });
  }
  void field(const char* name, std::vector<std::string>& value, const char*) override {
    if (const Node* node = take(name))
      read_list(*node, path_of(name), value, "a list of texts such as [a, b]", read_string);
  }
  void subtree(const char* name, Node& value, const char*) override {
    if (const Node* node = take(name)) value = *node;
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
  void enter(const char* name, const char*) override {
    const Node* node = levels.back().node ? levels.back().node->find(name) : nullptr;
    levels.back().known.emplace_back(name);
    push(node, path_of(name));
  }
  void leave() override {
    note_unknown();
    levels.pop_back();
  }

  std::vector<Level> levels;
  std::vector<Missing> missing;
  std::vector<std::string> unknown;
};

ConfigReader::ConfigReader(const Node& node, std::string path) : impl_(std::make_unique<Impl>(node, std::move(path))) {}
ConfigReader::~ConfigReader() = default;
Fields& ConfigReader::fields() {
  return *impl_;
}

void ConfigReader::finish() {
  impl_->note_unknown();
  if (!impl_->unknown.empty()) fail_together(impl_->unknown, "unknown keys");
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
