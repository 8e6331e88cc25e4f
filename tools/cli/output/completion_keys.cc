#include "cli/output/completion.h"

#include "app/compose/compose.h"

#include <filesystem>
#include <map>

#include "app/run/schema.h"
#include "app/run/search_path.h"
#include "lmx/config.h"
#include "lmx/error.h"

namespace lmx_cli {
namespace {

namespace fs = std::filesystem;
using Keys = std::map<std::string, std::set<std::string>>;  // each key with the values to suggest

// Returns the folders with a recipe's groups: its own folder, the folders named `recipes` above it, the search path.
std::vector<std::string> recipe_folders(const std::string& recipe, const std::vector<std::string>& more) {
  std::vector<std::string> folders{fs::path(recipe).parent_path().string()};
  if (folders[0].empty()) folders[0] = ".";
  for (fs::path p = fs::absolute(recipe).parent_path(); p.has_relative_path(); p = p.parent_path())
    if (p.filename() == "recipes") folders.push_back(p.string());
  folders.insert(folders.end(), more.begin(), more.end());
  return folders;
}

void add_options(const std::vector<std::string>& folders, const std::string& group, const std::string& start,
                 std::set<std::string>& out) {
  for (const std::string& folder : folders) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(fs::path(folder) / group, none))
      if (entry.path().extension() == ".yaml") out.insert(start + entry.path().stem().string());
  }
}

void add_groups(const std::vector<std::string>& folders, const std::string& start, std::set<std::string>& out) {
  for (const std::string& folder : folders) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder, none))
      if (entry.is_directory(none) && !entry.path().filename().string().starts_with("."))
        out.insert(start + entry.path().filename().string() + "=");
  }
}

void add_written(const lmx::Node& node, const std::string& path, Keys& keys) {
  for (const auto& [key, value] : node.entries) {
    const std::string full = path.empty() ? key : path + "." + key;
    if (value.kind == lmx::Node::Kind::map && !value.entries.empty()) {
      add_written(value, full, keys);
    } else {
      std::set<std::string>& values = keys[full];
      if (value.kind == lmx::Node::Kind::scalar) values.insert(value.text);
    }
  }
}

void add_part(const lmx::SchemaPart& part, Keys& keys) {
  if (const std::string chooser = lmx::choosing_key(part); !chooser.empty()) {
    keys[chooser].insert(part.component);
    keys[chooser].insert(part.others.begin(), part.others.end());
  }
  for (const lmx::FieldInfo& field : part.fields) {
    if (field.type == "map") continue;  // fields of a component, or free
    std::set<std::string>& values = keys[part.path.empty() ? field.name : part.path + "." + field.name];
    const std::vector<std::string> words = lmx::allowed_words(field);
    values.insert(words.begin(), words.end());
    const bool says_nothing = field.default_text.empty() || field.default_text == "???" || field.default_text == "''";
    if (values.empty() && !says_nothing) values.insert(field.default_text);
  }
}

// Composes the recipe with all overrides or, if that fails, with those that are valid.
lmx::Node composed(const std::string& recipe, lmx::ComposeOptions options) {
  const std::vector<std::string> overrides = std::exchange(options.overrides, {});
  lmx::ComposeOptions all = options;
  all.overrides = overrides;
  try {
    return lmx::compose(recipe, all);
  } catch (const lmx::Error&) {
  }
  lmx::Node tree = lmx::compose(recipe, options);
  for (const std::string& word : overrides) {
    options.overrides.push_back(word);
    try {
      tree = lmx::compose(recipe, options);
    } catch (const lmx::Error&) {
      options.overrides.pop_back();
    }
  }
  return tree;
}

}  // namespace

std::set<std::string> override_words(const GivenWords& given, const std::string& word) {
  std::set<std::string> out;
  const std::string sign = word.substr(0, std::min(word.find_first_not_of("+~"), word.size()));
  const std::string body = word.substr(sign.size());
  const size_t equals = body.find('=');
  Keys keys;
  std::vector<std::string> folders;
  try {
    given.plugins.load();
    const lmx::ComposeOptions options =
        with_plugins({{given.plain.begin() + 1, given.plain.end()}, given.config_directories, true, false});
    folders = recipe_folders(given.plain[0], options.search_path);
    const lmx::Node tree = composed(given.plain[0], options);
    add_written(tree, "", keys);
    // Only existing keys can be removed.
    if (!sign.starts_with("~"))
      for (const lmx::SchemaPart& part : lmx::recipe_schema(tree)) add_part(part, keys);
  } catch (const lmx::Error&) {
    // The command itself will report the error. Until then, suggest what is known.
  }
  if (keys.empty()) return out;
  if (equals == std::string::npos) {
    add_groups(folders, sign, out);
    for (const auto& [key, values] : keys) out.insert(sign + key + (sign == "~" ? "" : "="));
    return out;
  }
  const std::string key = body.substr(0, equals), start = sign + key + "=";
  add_options(folders, key, start, out);
  if (const auto known = keys.find(key); known != keys.end())
    for (const std::string& value : known->second) out.insert(start + value);
  return out;
}

}  // namespace lmx_cli
