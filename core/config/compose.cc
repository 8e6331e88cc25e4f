#include "config/defaults.h"
#include "config/interpolate.h"
#include "config/merge.h"
#include "config/messages.h"
#include "config/sources.h"

namespace lmx {

Node compose(const std::string& recipe_file, const ComposeOptions& options) {
  const config::SourceFile recipe = config::Sources::load(recipe_file);
  config::Sources sources(recipe_file, options.search_path);
  std::vector<config::Override> groups, values;
  for (const std::string& text : options.overrides) {
    config::Override o = config::parse_override(text);
    (config::is_group_override(o, sources) ? groups : values).push_back(std::move(o));
  }
  Node root = Node::map({recipe_file, 1, 1});
  for (const config::MergeStep& step : config::expand_defaults(recipe, sources, groups))
    config::merge_at(root, step.package, step.source->content);
  root.erase("sweep");  // says how `lmx sweep` varies the recipe; a single run is one point
  // Groups have shaped the tree; values then apply from left to right.
  const config::ApplyRules rules{options.typed, [&] { return sources.groups(); }};
  for (const config::Override& o : values) config::apply_override(root, o, rules);
  return options.resolve ? config::resolve_interpolations(root) : root;
}

}  // namespace lmx
