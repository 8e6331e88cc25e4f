// The points of a sweep, from overrides with several values.
#include "app/points/grid.h"

#include "app/compose/compose.h"

#include <algorithm>

#include "app/compose/inputs.h"
#include "app/compose/sources.h"
#include "config/messages.h"

namespace lmx {
namespace {

using config::at;
using config::Override;

SweepAxis axis_of(const Override& o, const config::Sources& sources) {
  SweepAxis axis;
  axis.key = o.full_key();
  axis.deletes = o.kind == Override::Kind::remove;
  if (!o.sweep) {
    axis.values = {o.value ? o.text.substr(o.text.find('=') + 1) : ""};
    if (axis.deletes && o.value) axis.key = o.text;
    return axis;
  }
  if (axis.deletes) throw UserError(str(at(o.mark), "a deletion cannot be swept: '", o.key, "' is there or it is not"));
  axis.tags = o.sweep->tags;
  for (const config::Term& term : o.sweep->terms) axis.values.push_back(term.text);
  if (o.sweep->kind == config::Sweep::Kind::interval) axis.interval = {o.sweep->begin, o.sweep->end};
  if (o.sweep->kind == config::Sweep::Kind::glob) {
    const std::vector<std::string> options = sources.options(o.key);
    for (const std::string& name : options)
      if (config::matches_glob(name, o.sweep->include) && !config::matches_glob(name, o.sweep->exclude))
        axis.values.push_back(name);
    if (options.empty())
      throw UserError(str(at(o.mark), "glob() chooses among the options of a group, and there is no group '", o.key,
                          "'", did_you_mean(o.key, sources.groups())));
    if (axis.values.empty())
      throw UserError(str(at(o.mark), "no option of '", o.key, "' matches; options: ", config::join(options)));
  }
  return axis;
}

// The axis of one entry of `sweep: {params: {optimizer.lr: "1e-3,3e-3", seed: [1, 2]}}`. The entry is parsed as an
// override.
SweepAxis axis_of_param(const std::string& key, const Node& value, const config::Sources& sources) {
  if (value.kind == Node::Kind::list && value.items.empty())
    throw UserError(str(at(value.mark, "sweep.params"), key, " has no values; an empty list as its value is [[]]"));
  std::vector<std::string> texts;
  std::vector<Mark> marks;
  for (const Node& item : value.items) {
    texts.push_back(config::value_text(item));
    marks.push_back(item.mark);
  }
  if (marks.empty()) marks.push_back(value.mark);
  const std::string text = value.kind == Node::Kind::list     ? config::join(texts, ",")
                           : value.kind == Node::Kind::scalar ? value.text
                                                              : config::value_text(value);
  try {
    SweepAxis axis = axis_of(config::parse_override(str(key, "=", text)), sources);
    axis.key_mark = config::key_place(value);
    axis.marks = std::move(marks);
    return axis;
  } catch (const UserError& e) {
    throw UserError(str(at(value.mark, "sweep.params"), e.what()));
  }
}

std::vector<SweepAxis> recipe_axes(const Node* params, const config::Sources& sources) {
  if (!params) return {};
  if (params->kind != Node::Kind::map)
    throw UserError(str(at(params->mark, "sweep.params"),
                        "expected keys with their values, such as optimizer.lr: \"1e-3,3e-3\", got ",
                        config::describe_value(*params)));
  std::vector<SweepAxis> axes;
  for (const auto& [key, value] : params->entries) axes.push_back(axis_of_param(key, value, sources));
  return axes;
}

// Appends the axes of `more`. An axis whose key occurs already replaces the earlier one.
std::vector<SweepAxis> merged(std::vector<SweepAxis> axes, std::vector<SweepAxis> more) {
  for (SweepAxis& axis : more) {
    const auto same = std::find_if(axes.begin(), axes.end(), [&](const SweepAxis& a) { return a.key == axis.key; });
    if (same == axes.end())
      axes.push_back(std::move(axis));
    else
      *same = std::move(axis);
  }
  return axes;
}

struct SweepParts {
  Node section;
  std::vector<SweepAxis> axes;
};

SweepParts read_sweep(const std::string& recipe_file, const ComposeOptions& options) {
  config::Inputs inputs(recipe_file, options.search_path);
  const auto axes_with = [&](const Node* params) {
    std::vector<SweepAxis> more;
    for (const std::string& text : options.overrides)
      more.push_back(axis_of(config::parse_override(text), inputs.sources));
    return merged(recipe_axes(params, inputs.sources), std::move(more));
  };
  ComposeOptions first = options;  // the first value of each axis, which decides which files are merged
  first.overrides.clear();
  for (const SweepAxis& axis : axes_with(inputs.recipe.content.at_path("sweep.params"))) {
    if (axis.interval) continue;
    const std::string text = axis.override_of(axis.values.front());
    first.overrides.push_back(text);
    if (!axis.key_mark.file.empty()) first.places[text] = {axis.key_mark, axis.marks.front()};
  }
  inputs.add(first);
  Node tree = Node::map();
  for (const config::MergeStep& step : config::expand_defaults(inputs.recipe, inputs.sources, inputs.groups).steps)
    config::merge_at(tree, step.package, step.source->content);
  const Node* section = tree.find("sweep");
  return {section ? *section : Node(), axes_with(section ? section->find("params") : nullptr)};
}

}  // namespace

Node sweep_section(const std::string& recipe_file, const ComposeOptions& options) {
  return read_sweep(recipe_file, options).section;
}

std::vector<SweepAxis> sweep_axes(const std::string& recipe_file, const ComposeOptions& options) {
  return read_sweep(recipe_file, options).axes;
}

std::vector<std::vector<std::string>> sweep_grid(const std::vector<SweepAxis>& axes, size_t limit) {
  std::vector<std::vector<std::string>> points{{}};
  for (const SweepAxis& axis : axes) {
    if (axis.interval)
      throw UserError(str("override '", axis.key, "=interval(", axis.interval->first, ",", axis.interval->second,
                          ")': a grid needs single values: choice(), range() or a,b; interval() is for random search"));
    if (points.size() * axis.values.size() > limit)
      throw UserError(
          str("the sweep has more than ", limit, " runs; ", axis.key, " alone has ", axis.values.size(), " values"));
    std::vector<std::vector<std::string>> longer;
    longer.reserve(points.size() * axis.values.size());
    for (const std::vector<std::string>& point : points) {
      for (const std::string& value : axis.values) {
        longer.push_back(point);
        longer.back().push_back(axis.override_of(value));
      }
    }
    points = std::move(longer);
  }
  return points;
}

}  // namespace lmx
