#include "config/compose.h"

#include <filesystem>

#include "config/interpolate.h"
#include "config/merge.h"
#include "config/messages.h"
#include "lmx/sweep.h"

namespace lmx {

void config::Inputs::add(const std::vector<std::string>& overrides) {
  for (const std::string& text : overrides) {
    Override o = parse_override(text);
    refuse_sweep(o);
    (is_group_override(o, sources) ? groups : values).push_back(std::move(o));
  }
}

Node compose_run(const std::string& recipe_file, const ComposeOptions& options, const RunNames& names) {
  config::Inputs inputs(recipe_file, options.search_path);
  inputs.add(options.overrides);
  Node root = Node::map({recipe_file, 1, 1});
  const config::Expanded expanded = config::expand_defaults(inputs.recipe, inputs.sources, inputs.groups);
  for (const config::MergeStep& step : expanded.steps) config::merge_at(root, step.package, step.source->content);
  root.erase("sweep");  // says how `lmx sweep` varies the recipe; a single run is one point
  // Groups have shaped the tree; values then apply from left to right.
  const config::ApplyRules rules{options.typed, [&] { return inputs.sources.groups(); }};
  for (const config::Override& o : inputs.values) config::apply_override(root, o, rules);
  if (!options.resolve) return root;
  config::RunValues run;
  run.name = names.job_name.empty() ? std::filesystem::path(recipe_file).stem().string() : names.job_name;
  run.number = names.job_number;
  run.override_dirname = override_dirname(options.overrides);
  run.choices = expanded.choices;
  return config::resolve_interpolations(root, run);
}

Node compose(const std::string& recipe_file, const ComposeOptions& options) {
  return compose_run(recipe_file, options, {});
}

std::vector<MergedFile> merged_files(const std::string& recipe_file, const ComposeOptions& options) {
  config::Inputs inputs(recipe_file, options.search_path);
  inputs.add(options.overrides);
  std::vector<MergedFile> files;
  for (const config::MergeStep& step : config::expand_defaults(inputs.recipe, inputs.sources, inputs.groups).steps)
    files.push_back({step.source->file, step.package});
  return files;
}

}  // namespace lmx
