#include "app/compose/sources.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "app/compose/interpolate.h"
#include "app/compose/override.h"
#include "config/messages.h"
#include "config/source_text.h"

namespace lmx::app {

namespace fs = std::filesystem;
namespace {

// Finds `# @package x` in the comments at the start of the file. UserError for `# @package: x`, which Hydra ignores
// silently.
std::optional<std::string> package_directive(const std::string& text, const std::string& file) {
  constexpr std::string_view kDirective = "@package";
  std::optional<std::string> package;
  int number = 0;
  for (const std::string& line : config::split(text, '\n')) {
    ++number;
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    if (line[begin] != '#') break;
    const size_t word = line.find_first_not_of("# \t", begin);
    if (word == std::string::npos || line.compare(word, kDirective.size(), kDirective) != 0) continue;
    const size_t first = line.find_first_not_of(" \t\r", word + kDirective.size());
    const size_t end = line.find_first_of(" \t\r", first);
    if (first != std::string::npos && line[first] == ':')
      throw UserError(str(config::at({file, number, static_cast<int>(word) + 1}),
                          "a ':' behind @package; write `# @package", line.substr(first + 1), "`"));
    if (first == std::string::npos || line.find_first_not_of(" \t\r", end) != std::string::npos)
      throw UserError(str(config::at({file, number, static_cast<int>(word) + 1}),
                          "expected one package, such as `# @package model.attn` or `# @package _global_`, got `",
                          line.substr(begin), "`"));
    if (package) throw UserError(config::at({file, number, static_cast<int>(word) + 1}) + "@package is here twice");
    package = line.substr(first, end - first);
  }
  return package;
}

// Splits "optional override /model/attn@pkg" into the entry's parts.
void parse_label(std::string label, DefaultEntry& entry) {
  for (bool more = true; more;) {
    more = false;
    for (const auto& [word, flag] :
         {std::pair{std::string("optional "), &entry.optional}, {"override ", &entry.is_override}}) {
      if (!label.starts_with(word)) continue;
      *flag = more = true;
      label.erase(0, label.find_first_not_of(' ', word.size()));
    }
  }
  const size_t sign = label.find('@');
  if (sign != std::string::npos) entry.package = label.substr(sign + 1);
  entry.group = label.substr(0, sign);
  const bool bad = entry.group.empty() || entry.group.find("..") != std::string::npos ||
                   entry.group.find_first_of(" \\") != std::string::npos || entry.group.ends_with("/");
  if (bad)
    throw UserError(str(config::at(entry.mark), "'", label, "' in a defaults list is neither a group nor a file"));
}

void check_option(const Node& option, const std::string& group) {
  const auto is_name = [](const Node& n) { return n.kind == Node::Kind::scalar && !n.text.empty(); };
  const bool good = option.kind == Node::Kind::null || is_name(option) ||
                    (option.kind == Node::Kind::list && std::all_of(option.items.begin(), option.items.end(), is_name));
  if (!good)
    throw UserError(str(config::at(option.mark), "group '", group,
                        "' takes the name of an option or a list of names, got ", config::describe_value(option)));
}

DefaultEntry parse_default(const Node& node) {
  DefaultEntry entry;
  entry.mark = node.mark;
  if (node.kind == Node::Kind::scalar && node.text == "_self_") {
    entry.kind = DefaultEntry::Kind::self;
  } else if (node.kind == Node::Kind::scalar && !node.quoted && (parse_double(node.text) || parse_bool(node.text))) {
    throw UserError(str(config::at(node.mark), node.text,
                        " in a defaults list is no text; a file of this name needs quotes: '", node.text, "'"));
  } else if (node.kind == Node::Kind::scalar) {
    entry.kind = DefaultEntry::Kind::file;
    parse_label(node.text, entry);
    if (entry.is_override)
      throw UserError(str(config::at(node.mark), "override takes a group: `override ", entry.group, ": option`"));
    entry.set_file(std::string(entry.group));
  } else if (node.kind == Node::Kind::map && node.entries.size() == 1) {
    parse_label(node.entries[0].first, entry);
    entry.option = node.entries[0].second;
    check_option(entry.option, entry.group);
  } else if (node.kind == Node::Kind::map) {
    throw UserError(str(config::at(node.mark), "an entry of a defaults list has one key, got ",
                        config::join(node.keys()), "; write them as two entries"));
  } else {
    throw UserError(str(config::at(node.mark), "an entry of a defaults list is `group: option`, a file or _self_, got ",
                        config::describe_value(node)));
  }
  return entry;
}

void check_self_and_overrides(const RecipeFile& source) {
  const DefaultEntry* self = nullptr;
  const DefaultEntry* first_override = nullptr;
  for (const DefaultEntry& entry : source.defaults) {
    if (entry.kind == DefaultEntry::Kind::self) {
      if (self)
        throw UserError(str(config::at(entry.mark), "_self_ is here twice; the first is at line ", self->mark.line));
      self = &entry;
    } else if (entry.is_override) {
      first_override = &entry;
    } else if (first_override) {
      throw UserError(str(config::at(first_override->mark), "override ", first_override->label(),
                          " must be at the end of the defaults list, after ", entry.label()));
    }
  }
}

}  // namespace

void DefaultEntry::set_file(const std::string& path) {
  const size_t slash = path.rfind('/');
  name = path.substr(slash + 1);
  group = slash == std::string::npos ? "" : slash == 0 ? "/" : path.substr(0, slash);
}

std::string DefaultEntry::path() const {
  if (kind != Kind::file) return group;
  return group.empty() || group == "/" ? group + name : group + "/" + name;
}

std::string DefaultEntry::label() const {
  if (kind == Kind::self) return "_self_";
  return package ? str(path(), "@", *package) : path();
}

RecipeFile Sources::load(const std::string& file) {
  if (file.ends_with(".toml"))
    throw UserError(str(file, ": recipes are YAML, not TOML; `key = 1` is `key: 1` there, and [table] is `table:`"));
  const std::string text = config::read_text(file);
  RecipeFile source;
  source.file = file;
  source.package = package_directive(text, file);
  source.content = parse_yaml(text, file);
  if (source.content.kind == Node::Kind::null) source.content.kind = Node::Kind::map;
  if (source.content.kind != Node::Kind::map)
    throw UserError(str(config::at(source.content.mark), "expected a map (key: value lines), got ",
                        config::describe_value(source.content)));
  if (const Node* defaults = source.content.find("defaults")) {
    if (defaults->kind != Node::Kind::list)
      throw UserError(str(config::at(defaults->mark), "defaults must be a list (lines that start with `- `), got ",
                          config::describe_value(*defaults)));
    for (const Node& entry : defaults->items) source.defaults.push_back(parse_default(entry));
    check_self_and_overrides(source);
    source.content.erase("defaults");
  }
  return source;
}

Sources::Sources(const std::string& recipe_file, const std::vector<std::string>& search_path) {
  const fs::path own = fs::path(recipe_file).parent_path();
  folders_.push_back(own.string());
  fs::path above = own;
  const fs::path absolute = own.empty() ? fs::current_path() : fs::absolute(own / "x").lexically_normal().parent_path();
  for (fs::path folder = absolute; folder.has_relative_path(); folder = folder.parent_path(), above /= "..") {
    if (folder.filename() != "recipes" || folder == absolute) continue;
    fs::path relative = above.lexically_normal();
    if (!relative.has_filename()) relative = relative.parent_path();
    folders_.push_back(relative.string());
  }
  for (const std::string& folder : search_path) {
    if (!fs::is_directory(folder)) throw UserError(str("--config-dir ", folder, ": there is no such folder"));
    std::error_code none;
    const bool known = std::any_of(folders_.begin(), folders_.end(), [&](const std::string& other) {
      return fs::equivalent(other.empty() ? "." : other, folder, none);
    });
    if (!known) folders_.push_back(folder);
  }
}

const RecipeFile* Sources::find(const std::string& name) {
  const std::string path = name.ends_with(".yaml") ? name.substr(0, name.size() - 5) : name;
  auto [it, is_new] = files_.try_emplace(path);
  if (!is_new) return it->second ? &*it->second : nullptr;
  for (const std::string& folder : folders_) {
    const fs::path file = fs::path(folder) / (path + ".yaml");
    if (!fs::is_regular_file(file)) continue;
    it->second = load(file.string());
    return &*it->second;
  }
  return nullptr;
}

bool Sources::has_group(const std::string& group) const {
  return std::any_of(folders_.begin(), folders_.end(),
                     [&](const auto& folder) { return fs::is_directory(fs::path(folder) / group); });
}

std::vector<std::string> Sources::options(const std::string& group) const {
  std::set<std::string> names;
  for (const std::string& folder : folders_) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(fs::path(folder) / group, none))
      if (entry.path().extension() == ".yaml") names.insert(entry.path().stem().string());
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> Sources::groups() const {
  std::set<std::string> names;
  constexpr int kMaxLevels = 4;
  for (const std::string& folder : folders_) {
    const fs::path root = folder.empty() ? "." : folder;
    std::error_code none;
    for (auto it = fs::recursive_directory_iterator(root, none); it != fs::recursive_directory_iterator();
         it.increment(none)) {
      if (it->is_directory(none)) {
        if (it.depth() >= kMaxLevels || it->path().filename().string().starts_with(".")) it.disable_recursion_pending();
      } else if (it->path().extension() == ".yaml" && it.depth() > 0) {
        names.insert(it->path().parent_path().lexically_relative(root).generic_string());
      }
    }
  }
  return {names.begin(), names.end()};
}

namespace {

// The keys of a map that an override can name: a dot divides an override's key, so a key that contains one is left out.
std::vector<std::string> named_keys(const Node& parent) {
  std::vector<std::string> keys = parent.keys();
  std::erase_if(keys, [](const std::string& key) { return key.find('.') != std::string::npos; });
  return keys;
}

std::string list_of_keys(const Node& parent, const std::string& path) {
  if (parent.kind == Node::Kind::list) return str("; ", path, " has ", parent.items.size(), " items, counted from 0");
  if (parent.kind != Node::Kind::map)
    return str("; ", path, " is ", config::describe_value(parent), " (", to_string(parent.mark), ")");
  const std::vector<std::string> keys = named_keys(parent);
  if (keys.empty()) return "";
  return str("; keys of ", path.empty() ? "the recipe" : path, ": ", config::join(keys));
}

[[noreturn]] void fail_unknown(const Override& o, const std::string& key, const Node& parent, const std::string& path,
                               const std::string& part, const ApplyRules& rules) {
  std::vector<std::string> candidates = named_keys(parent);
  if (path.empty() && rules.groups) {
    const std::vector<std::string> groups = rules.groups();
    candidates.insert(candidates.end(), groups.begin(), groups.end());
  }
  const std::string near = nearest(part, candidates);
  const std::string hint = near.empty() ? "" : str(" (did you mean '", config::join_path(path, near), "'?)");
  const bool can_add =
      o.kind == Override::Kind::set && parent.kind != Node::Kind::list && parent.kind != Node::Kind::scalar;
  throw UserError(str(config::at(o.mark), "no key '", key, "'", hint, list_of_keys(parent, path),
                      can_add ? str("; +", o.body(), " adds it") : ""));
}

// The map or list that contains the last part of o.key. Missing maps on the path are created if the override may add
// keys.
Node& parent_of(Node& root, const Override& o, const std::vector<std::string>& parts, const ApplyRules& rules) {
  const bool may_create = o.kind != Override::Kind::remove && (rules.typed || o.kind != Override::Kind::set);
  Node* node = &root;
  std::string path;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    Node* next = node->at_path(parts[i]);
    const bool container = node->kind == Node::Kind::map || node->kind == Node::Kind::null;
    if (!next && may_create && container) next = &node->set(parts[i], Node::map(o.mark));
    if (!next) fail_unknown(o, o.key, *node, path, parts[i], rules);
    node = next;
    path = config::join_path(path, parts[i]);
  }
  const bool empty = node->kind == Node::Kind::null || config::is_missing(*node);
  if (empty && may_create) *node = Node::map(o.mark);
  if (node->kind != Node::Kind::map && node->kind != Node::Kind::list)
    fail_unknown(o, o.key, *node, path, parts.back(), rules);
  return *node;
}

void remove(Node& parent, const Override& o, const std::string& part) {
  const Node& there = *parent.at_path(part);
  if (o.value && !same_value(there, *o.value))
    throw UserError(str(config::at(o.mark), "'", o.key, "' is ", value_text(there), ", not ", value_text(*o.value)));
  if (parent.kind == Node::Kind::list)
    throw UserError(str(config::at(o.mark), "items of a list cannot be removed; set the whole list"));
  parent.erase(part);
}

// A list that replaces a map, or a map that replaces a list, is probably a mistake: an override that first sets `null`
// shows that it is intended.
void check_containers(const Node& there, const Node& value, const std::string& path) {
  const auto clash = [&](Node::Kind a, Node::Kind b) { return there.kind == a && value.kind == b; };
  if (!clash(Node::Kind::map, Node::Kind::list) && !clash(Node::Kind::list, Node::Kind::map)) return;
  throw UserError(str(config::at(value.mark), "'", path, "' is ", config::describe_value(there), " (",
                      to_string(there.mark), "), which ", config::describe_value(value), " cannot replace"));
}

// Without +, a map's literal may only set existing keys: `optim={lrr: 1}` must not add a key.
void check_keys(const Node& there, const Node& value, const Override& o, const std::string& path,
                const ApplyRules& rules) {
  if (there.kind != Node::Kind::map || value.kind != Node::Kind::map) return;
  for (const auto& [key, item] : value.entries) {
    const Node* known = there.find(key);
    if (!known) fail_unknown(o, config::join_path(path, key), there, path, key, rules);
    check_keys(*known, item, o, config::join_path(path, key), rules);
  }
}

}  // namespace

void merge(Node& into, const Node& from, const std::string& path, const Node* root) {
  if (root && from.kind == Node::Kind::map) {
    // A map that is merged over a single `${a}` changes a copy of the map to which the reference points.
    const Node* target = referred(*root, into, path);
    if (target && target->kind == Node::Kind::map) {
      const Mark key_mark = into.key_mark;
      into = Node(*target);
      into.key_mark = key_mark;
    }
  }
  if (into.kind == Node::Kind::map && from.kind == Node::Kind::map) {
    for (const auto& [key, value] : from.entries) {
      if (Node* there = into.find(key)) {
        merge(*there, value, config::join_path(path, key), root);
      } else {
        into.entries.emplace_back(key, value);
      }
    }
  } else if (!config::is_missing(from)) {
    check_containers(into, from, path);
    into = from;
  }
}

void merge_at(Node& root, const std::string& package, const Node& from) {
  if (package.empty()) return merge(root, from, "", &root);
  const std::vector<std::string> parts = config::split(package, '.');
  Node wrapped = from;  // a.b: {a: {b: from}}
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    Node outer = Node::map(from.mark);
    outer.set(*part, std::move(wrapped));
    wrapped = std::move(outer);
  }
  merge(root, wrapped, "", &root);
}

void apply_override(Node& root, const Override& o, const ApplyRules& rules) {
  const std::vector<std::string> parts = config::split(o.key, '.');
  Node& parent = parent_of(root, o, parts, rules);
  const std::string& last = parts.back();
  Node* there = parent.at_path(last);
  const std::string parent_path = config::join({parts.begin(), parts.end() - 1}, ".");
  const bool adds = o.kind != Override::Kind::remove && (rules.typed || o.kind != Override::Kind::set);
  if (!there && (!adds || parent.kind == Node::Kind::list)) fail_unknown(o, o.key, parent, parent_path, last, rules);
  if (o.kind == Override::Kind::remove) return remove(parent, o, last);
  if (!there) return void(parent.set(last, *o.value));
  const bool merges = there->kind == Node::Kind::map && o.value->kind == Node::Kind::map;
  const bool free = there->kind == Node::Kind::null || config::is_missing(*there) || merges ||
                    (there->kind == Node::Kind::list && o.value->kind == Node::Kind::list);
  if (o.kind == Override::Kind::add && !free)
    throw UserError(str(config::at(o.mark), "'", o.key, "' is there already (", to_string(there->mark), "); write ",
                        o.body(), " without +, or ++", o.body(), ", which adds or overrides"));
  if (merges && !adds) check_keys(*there, *o.value, o, o.key, rules);
  if (merges) {
    merge(*there, *o.value, o.key);
  } else {
    check_containers(*there, *o.value, o.key);
    *there = *o.value;
  }
}

}  // namespace lmx::app
