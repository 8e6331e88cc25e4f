#include "app/compose/compose.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "app/compose/interpolate.h"
#include "app/compose/sources.h"
#include "base/sha256.h"
#include "config/messages.h"
#include "lmx/error.h"

namespace lmx::app {

void Inputs::add(const ComposeOptions& options) {
  for (const std::string& text : options.overrides) {
    Override o = parse_override(text);
    refuse_sweep(o);
    if (const auto place = options.places.find(text); place != options.places.end()) o.put_at(place->second);
    (is_group_override(o, sources, recipe) ? groups : values).push_back(std::move(o));
  }
}

namespace {

// Calls `after_step` with the tree after each merged file and each applied override.
Node put_together(Inputs& inputs, const Expanded& expanded, const ComposeOptions& options,
                  const std::function<void(const Node&)>& after_step = {}) {
  Node root = Node::map({inputs.recipe.file, 1, 1});
  const auto done = [&] {
    if (after_step) after_step(root);
  };
  for (const MergeStep& step : expanded.steps) {
    merge_at(root, step.package, step.source->content);
    root.erase("sweep");  // for `lmx sweep` only: a single run is one point
    done();
  }
  // Groups have shaped the tree; values then apply from left to right.
  const ApplyRules rules{options.typed, [&] { return inputs.sources.groups(); }};
  for (const Override& o : inputs.values) {
    apply_override(root, o, rules);
    done();
  }
  return root;
}

std::string value_of(const Node& node) {
  std::string text = node.kind == Node::Kind::map ? to_json(node) : to_yaml(node);
  text.resize(text.find_last_not_of('\n') + 1);
  return text;
}

bool same_mark(const Mark& a, const Mark& b) {
  return a.file == b.file && a.line == b.line && a.column == b.column;
}

// Adds the path of each value that names an environment variable, by the variable's name. A variable that is not set
// gives no value.
void collect_variables(const Node& node, const std::string& path,
                       std::map<std::string, std::vector<std::string>>& variables) {
  constexpr std::string_view kCall = "${oc.env:";
  for (size_t i = 0; i < node.items.size(); ++i)
    collect_variables(node.items[i], config::join_path(path, std::to_string(i)), variables);
  for (const auto& [key, value] : node.entries) collect_variables(value, config::join_path(path, key), variables);
  if (!has_interpolation(node)) return;
  for (size_t at = node.text.find(kCall); at != std::string::npos; at = node.text.find(kCall, at + 1)) {
    const size_t begin = at + kCall.size();
    const std::string name = node.text.substr(begin, node.text.find_first_of(",}", begin) - begin);
    if (std::getenv(name.c_str())) variables[name].push_back(path);
  }
}

using History = std::map<std::string, std::vector<ReplacedValue>>;

// Adds to `history` the old value at each path where `now` has another value than `before`.
void note_changes(const Node& before, const Node& now, const std::string& path, History& history) {
  if (now.kind == Node::Kind::map && before.kind == Node::Kind::map) {
    for (const auto& [key, value] : now.entries)
      if (const Node* old = before.find(key)) note_changes(*old, value, config::join_path(path, key), history);
    return;
  }
  if (same_mark(before.mark, now.mark) && value_of(before) == value_of(now)) return;
  std::vector<ReplacedValue>& values = history[path];
  values.insert(values.begin(), {value_of(before), before.mark});
}

}  // namespace

Node compose_run(const std::string& recipe_file, const ComposeOptions& options, const RunNames& names) {
  Inputs inputs(recipe_file, options.search_path);
  inputs.add(options);
  const Expanded expanded = expand_defaults(inputs.recipe, inputs.sources, inputs.groups);
  const Node root = put_together(inputs, expanded, options);
  if (!options.resolve) return root;
  RunValues run;
  run.name = names.job_name.empty() ? std::filesystem::path(recipe_file).stem().string() : names.job_name;
  run.number = names.job_number;
  run.override_dirname = override_dirname(options.overrides);
  run.choices = expanded.choices;
  if (options.default_of) run.default_of = [&](const std::string& path) { return options.default_of(root, path); };
  return resolve_interpolations(root, run);
}

Node compose(const std::string& recipe_file, const ComposeOptions& options) {
  return compose_run(recipe_file, options, {});
}

std::vector<MergedFile> merged_files(const std::string& recipe_file, const ComposeOptions& options) {
  Inputs inputs(recipe_file, options.search_path);
  inputs.add(options);
  std::vector<MergedFile> files;
  for (const MergeStep& step : expand_defaults(inputs.recipe, inputs.sources, inputs.groups).steps)
    files.push_back({step.source->file, step.package, step.chosen_by});
  return files;
}

std::vector<std::string> environment_values(const std::string& recipe_file, ComposeOptions options) {
  options.resolve = false;
  std::map<std::string, std::vector<std::string>> variables;
  collect_variables(compose(recipe_file, options), "", variables);
  std::vector<std::string> lines;
  for (const auto& [name, paths] : variables) lines.push_back(str(name, " (", config::join(paths), ")"));
  return lines;
}

History replaced_values(const std::string& recipe_file, const ComposeOptions& options) {
  Inputs inputs(recipe_file, options.search_path);
  inputs.add(options);
  History history;
  Node before = Node::map();
  const Expanded expanded = expand_defaults(inputs.recipe, inputs.sources, inputs.groups);
  put_together(inputs, expanded, options, [&](const Node& now) {
    note_changes(before, now, "", history);
    before = now;
  });
  return history;
}

std::string override_dirname(const std::vector<std::string>& overrides, const DirnameRules& rules) {
  std::vector<std::string> items;
  for (const std::string& text : overrides) {
    const size_t equals = text.find('=');
    const size_t begin = std::min(text.find_first_not_of("+~"), text.size());
    const std::string key = text.substr(begin, equals == std::string::npos ? equals : equals - begin);
    if (std::find(rules.exclude.begin(), rules.exclude.end(), key) != rules.exclude.end()) continue;
    items.push_back(
        equals == std::string::npos ? text : str(text.substr(0, equals), rules.key_separator, text.substr(equals + 1)));
  }
  std::sort(items.begin(), items.end());
  std::string name = config::join(items, rules.item_separator);
  constexpr size_t kLongest = 200;  // a folder name has at most 255 bytes, and callers append to it
  if (name.size() > kLongest) name = str(name.substr(0, kLongest - 9), "_", Sha256().add(name).digest().substr(0, 8));
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

Node compose_on_ranks(const std::string& recipe, const ComposeOptions& options, int64_t ranks, const RunNames& names) {
  if (ranks == 0) return compose_run(recipe, options, names);
  for (const std::string& word : options.overrides) {
    const size_t begin = std::min(word.find_first_not_of("+~"), word.size());
    const std::string key = word.substr(begin, word.find('=') - begin);
    if (key != "comm" && !key.starts_with("comm.")) continue;
    throw UserError(str("--ranks ", ranks, " means comm=virtual comm.ranks=", ranks, ", and '", word,
                        "' says something else about comm: leave out one of them"));
  }
  Node tree = compose_run(recipe, options, names);
  const Mark mark{str("option '--ranks ", ranks, "'")};
  Node comm = Node::map(mark);
  comm.set("name", Node::string("virtual", mark));
  comm.set("ranks", Node::scalar(std::to_string(ranks), mark));
  tree.set("comm", comm);
  return tree;
}

}  // namespace lmx::app
