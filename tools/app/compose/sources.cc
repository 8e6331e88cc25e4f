#include "app/compose/sources.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "config/messages.h"
#include "config/source_text.h"

namespace lmx::config {
namespace fs = std::filesystem;
namespace {

// Finds `# @package x` in the comments at the start of the file. UserError for `# @package: x`, which Hydra ignores
// silently.
std::optional<std::string> package_directive(const std::string& text, const std::string& file) {
  constexpr std::string_view kDirective = "@package";
  std::optional<std::string> package;
  int number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    if (line[begin] != '#') break;
    const size_t word = line.find_first_not_of("# \t", begin);
    if (word == std::string::npos || line.compare(word, kDirective.size(), kDirective) != 0) continue;
    const size_t first = line.find_first_not_of(" \t\r", word + kDirective.size());
    const size_t end = line.find_first_of(" \t\r", first);
    if (first != std::string::npos && line[first] == ':')
      throw UserError(str(at({file, number, static_cast<int>(word) + 1}), "a ':' behind @package; write `# @package",
                          line.substr(first + 1), "`"));
    if (first == std::string::npos || line.find_first_not_of(" \t\r", end) != std::string::npos)
      throw UserError(str(at({file, number, static_cast<int>(word) + 1}),
                          "expected one package, such as `# @package model.attn` or `# @package _global_`, got `",
                          line.substr(begin), "`"));
    if (package) throw UserError(at({file, number, static_cast<int>(word) + 1}) + "@package is here twice");
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
  if (bad) throw UserError(str(at(entry.mark), "'", label, "' in a defaults list is neither a group nor a file"));
}

void check_option(const Node& option, const std::string& group) {
  const auto is_name = [](const Node& n) { return n.kind == Node::Kind::scalar && !n.text.empty(); };
  const bool good = option.kind == Node::Kind::null || is_name(option) ||
                    (option.kind == Node::Kind::list && std::all_of(option.items.begin(), option.items.end(), is_name));
  if (!good)
    throw UserError(str(at(option.mark), "group '", group, "' takes the name of an option or a list of names, got ",
                        describe_value(option)));
}

DefaultEntry parse_default(const Node& node) {
  DefaultEntry entry;
  entry.mark = node.mark;
  if (node.kind == Node::Kind::scalar && node.text == "_self_") {
    entry.kind = DefaultEntry::Kind::self;
  } else if (node.kind == Node::Kind::scalar && !node.quoted && (parse_double(node.text) || parse_bool(node.text))) {
    throw UserError(str(at(node.mark), node.text, " in a defaults list is no text; a file of this name needs quotes: '",
                        node.text, "'"));
  } else if (node.kind == Node::Kind::scalar) {
    entry.kind = DefaultEntry::Kind::file;
    parse_label(node.text, entry);
    if (entry.is_override)
      throw UserError(str(at(node.mark), "override takes a group: `override ", entry.group, ": option`"));
    entry.set_file(std::string(entry.group));
  } else if (node.kind == Node::Kind::map && node.entries.size() == 1) {
    parse_label(node.entries[0].first, entry);
    entry.option = node.entries[0].second;
    check_option(entry.option, entry.group);
  } else if (node.kind == Node::Kind::map) {
    throw UserError(str(at(node.mark), "an entry of a defaults list has one key, got ", join(node.keys()),
                        "; write them as two entries"));
  } else {
    throw UserError(str(at(node.mark), "an entry of a defaults list is `group: option`, a file or _self_, got ",
                        describe_value(node)));
  }
  return entry;
}

void check_self_and_overrides(const SourceFile& source) {
  const DefaultEntry* self = nullptr;
  const DefaultEntry* first_override = nullptr;
  for (const DefaultEntry& entry : source.defaults) {
    if (entry.kind == DefaultEntry::Kind::self) {
      if (self) throw UserError(str(at(entry.mark), "_self_ is here twice; the first is at line ", self->mark.line));
      self = &entry;
    } else if (entry.is_override) {
      first_override = &entry;
    } else if (first_override) {
      throw UserError(str(at(first_override->mark), "override ", first_override->label(),
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

SourceFile Sources::load(const std::string& file) {
  if (file.ends_with(".toml"))
    throw UserError(str(file, ": recipes are YAML, not TOML; `key = 1` is `key: 1` there, and [table] is `table:`"));
  const std::string text = read_text(file);
  SourceFile source;
  source.file = file;
  source.package = package_directive(text, file);
  source.content = parse_yaml(text, file);
  if (source.content.kind == Node::Kind::null) source.content.kind = Node::Kind::map;
  if (source.content.kind != Node::Kind::map)
    throw UserError(
        str(at(source.content.mark), "expected a map (key: value lines), got ", describe_value(source.content)));
  if (const Node* defaults = source.content.find("defaults")) {
    if (defaults->kind != Node::Kind::list)
      throw UserError(str(at(defaults->mark), "defaults must be a list (lines that start with `- `), got ",
                          describe_value(*defaults)));
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

const SourceFile* Sources::find(const std::string& name) {
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

}  // namespace lmx::config
