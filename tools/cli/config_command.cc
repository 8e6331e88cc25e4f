// lmx config: prints a recipe in the form in which it will run, without running it.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "app/compose/compose.h"
#include "app/print/terminal.h"
#include "app/run/schema.h"
#include "app/run/shipped.h"
#include "app/sweep/plan.h"
#include "cli/commands.h"
#include "lmx/config.h"
#include "recipe/recipe.h"

namespace lmx::app::cli {
namespace {

struct ConfigFlags {
  std::string recipe, explain;
  ComposeOptions compose;
  bool as_written = false, explains = false, schema = false, files = false, json = false;
  int64_t ranks = 0;  // 0: the recipe's number of ranks
  PluginDirectories plugins;
  std::string name() const { return std::filesystem::path(recipe).stem().string(); }
};

// The word after --explain is always its key, even if it was intended as an override.
std::string key_to_explain(const std::string& word) {
  if (word.find_first_of("=~+") == std::string::npos) return word;
  throw UserError(str("--explain ", word, ": expected a key such as model.cells; overrides come before it"));
}

void print_files(const std::string& recipe, const ComposeOptions& compose) {
  std::vector<std::vector<std::string>> rows{{"FILE", "MERGED INTO"}};
  for (const MergedFile& f : merged_files(recipe, compose))
    rows.push_back({f.file, f.package.empty() ? "(the recipe)" : f.package});
  std::cout << table(rows);
}

// Shortens a value for a table cell.
std::string shortened(const std::string& text) {
  constexpr size_t kWidest = 60;
  const std::string line = text.substr(0, text.find('\n'));
  return line.size() <= kWidest && line.size() == text.size() ? line : line.substr(0, kWidest - 3) + "...";
}

Node replaced_json(const std::vector<ReplacedValue>& values) {
  Node list = Node::list({});
  for (const ReplacedValue& v : values) {
    Node entry = Node::map();
    entry.set("value", Node::string(v.value));
    entry.set("origin", Node::string(to_string(v.mark)));
    list.items.push_back(entry);
  }
  return list;
}

// Formats the values that a value has replaced, the newest first: "512 (recipes/model/lstm.yaml:3:8), 256
// (recipes/base.yaml:4:3)".
std::string replaced_text(const std::vector<ReplacedValue>& values) {
  std::string text;
  for (const ReplacedValue& v : values)
    text += str(text.empty() ? "" : ", ", shortened(v.value), " (", to_string(v.mark), ")");
  return text;
}

// Returns all keys, such as "model.cells", and each part once, such as "model".
std::vector<std::string> keys_and_parts(const std::vector<ValueOrigin>& values) {
  std::vector<std::string> keys;
  for (const ValueOrigin& v : values) {
    for (size_t dot = v.path.find('.'); dot != std::string::npos; dot = v.path.find('.', dot + 1))
      if (const std::string part = v.path.substr(0, dot); std::find(keys.begin(), keys.end(), part) == keys.end())
        keys.push_back(part);
    keys.push_back(v.path);
  }
  return keys;
}

void print_origins(const ConfigFlags& options, const Node& tree) {
  const ComposeOptions compose = with_plugins(options.compose);
  const std::vector<ValueOrigin> all = explain_recipe(tree, options.name(), merged_files(options.recipe, compose));
  const auto replaced = replaced_values(options.recipe, compose);
  std::vector<std::vector<std::string>> rows{{"KEY", "VALUE", "ORIGIN", "NOTE", "REPLACES"}};
  Node list = Node::list({});
  for (const ValueOrigin& v : all) {
    const bool wanted =
        options.explain.empty() || v.path == options.explain || v.path.starts_with(options.explain + ".");
    if (!wanted) continue;
    const auto before = replaced.find(v.path);
    const std::string note = v.provenance + (v.provenance.empty() || v.comment.empty() ? "" : "; ") + v.comment;
    rows.push_back(
        {v.path, shortened(v.value), v.origin, note, before == replaced.end() ? "" : replaced_text(before->second)});
    Node row = Node::map();
    for (const auto& [key, text] : {std::pair{"key", v.path},
                                    {"value", v.value},
                                    {"origin", v.origin},
                                    {"note", note},
                                    {"provenance", v.provenance}})
      row.set(key, Node::string(text));
    if (before != replaced.end()) row.set("replaces", replaced_json(before->second));
    list.items.push_back(row);
  }
  if (rows.size() == 1)
    throw UserError(str("no key '", options.explain, "'", did_you_mean(options.explain, keys_and_parts(all)),
                        "; lmx config ", options.recipe, " --explain lists them all"));
  std::cout << (options.json ? to_json(list) + "\n" : table(rows));
}

// Returns "model: lstm (others: mlstm, rhn)" in lines that fit the terminal.
std::string title_of(const SchemaPart& part) {
  std::string title = part.path.empty() ? "the recipe" : part.path;
  if (!part.component.empty()) title += ": " + part.component;
  for (const std::string& name : part.others) title += (&name == &part.others.front() ? " (others: " : ", ") + name;
  if (!part.others.empty()) title += ")";
  std::string lines;
  for (const std::string& line : wrapped(title, terminal_width())) lines += line + "\n";
  return lines;
}

void print_schema(const ConfigFlags& options, const Node& tree) {
  std::vector<SchemaPart> parts = recipe_schema(tree);
  parts.push_back(sweep::sweep_schema());
  if (options.json) {
    std::cout << to_json(json_schema(parts)) << "\n";
    return;
  }
  for (const SchemaPart& part : parts) {
    std::cout << (&part == &parts.front() ? "" : "\n") << title_of(part);
    std::vector<std::vector<std::string>> rows{{"  FIELD", "TYPE", "DEFAULT", "RANGE", "MEANING"}};
    const auto has_own_part = [&](const std::string& name) {
      return part.path.empty() && std::any_of(parts.begin(), parts.end(), [&](const SchemaPart& p) {
               return p.path == name || p.path.starts_with(name + ".");
             });
    };
    for (const FieldInfo& f : part.fields)
      if (!has_own_part(f.name))
        rows.push_back({"  " + f.name, f.type, f.default_text == "null" ? "" : f.default_text, f.range, f.help});
    if (rows.size() > 1)
      std::cout << table(rows);
    else
      std::cout << "  no fields\n";
  }
}

void print_recipe(const ConfigFlags& options) {
  if (options.as_written + options.files + options.schema + options.explains > 1)
    throw UserError("--explain, --schema, --files and --composed each print another thing; give one of them");
  if (options.json && !options.explains && !options.schema)
    throw UserError("--json belongs to --explain or --schema; the recipe itself is printed as YAML");
  options.plugins.load();
  const ComposeOptions compose = with_plugins(options.compose);
  if (options.files) return print_files(options.recipe, compose);
  Node tree = compose_on_ranks(options.recipe, compose, options.ranks);
  if (options.as_written) {
    std::cout << to_yaml(tree);
    return;
  }
  if (options.schema) return print_schema(options, tree);
  if (options.explains) return print_origins(options, tree);
  std::cout << to_yaml(full_recipe(tree, options.name()));
}

}  // namespace

void add_config(Command app) {
  const Command command =
      app.add_subcommand("config", "print a recipe as it will run: composed, checked, with every default");
  set_examples(
      command,
      {{"lmx config recipes/quickstart.yaml", "every value that a run would use"},
       {"lmx config recipes/quickstart.yaml model.cells=512", "with one value changed"},
       {"lmx config recipes/quickstart.yaml optimizer=adam", "with another option of a group"},
       {"lmx config recipes/quickstart.yaml --composed", "only the values of the files"},
       {"lmx config recipes/ott_wmt.yaml --explain optimizer", "the origin of each value, and the recipe's notes"},
       {"lmx config recipes/quickstart.yaml --schema", "every key and value that the recipe may contain"},
       {"lmx config recipes/ott_wmt.yaml --files", "the files it consists of, in their order"}});
  const auto options = std::make_shared<ConfigFlags>();
  command.add_option("RECIPE", options->recipe, "the recipe's file").recipe().required();
  command.add_option("OVERRIDES", options->compose.overrides, "key=value, +key=value, ++key=value, ~key, group=option");
  command.add_option("--config-dir DIR", options->compose.search_path, "another folder of config groups (repeatable)")
      .repeatable();
  command.add_option("--ranks N", options->ranks, "N virtual ranks, as `lmx run --ranks N` would have them").positive();
  command.add_flag("--composed", options->as_written, "leave out the defaults and the checks of the components");
  command.add_flag("--files", options->files,
                   "the files that are merged, in order, and the key that each one is merged into");
  command
      .add_option_function(
          "--explain [KEY]",
          [options](const std::string& key) {
            options->explains = true;
            options->explain = key_to_explain(key);
          },
          "each value (or those of KEY) with its origin, the recipe's note on it, and the values that it replaced")
      .optional_value();
  command.add_flag("--schema", options->schema, "keys that the recipe may contain: type, default, range and meaning");
  command.add_flag("--json", options->json, "--explain and --schema as JSON, for other programs");
  options->plugins.add_to(command);
  command.callback([options] { print_recipe(*options); });
}

}  // namespace lmx::app::cli
