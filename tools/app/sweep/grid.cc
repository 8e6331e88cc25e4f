#include "app/sweep/grid.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

#include "app/compose/compose.h"
#include "app/compose/sources.h"
#include "base/text.h"
#include "config/messages.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "lmx/random.h"

namespace lmx::app::sweep {
namespace {

std::string drawn_number(const Axis& axis, double uniform) {
  const auto [low, high] = *axis.interval;
  const double value = axis.logarithmic ? low * std::pow(high / low, uniform) : low + (high - low) * uniform;
  const double inside = std::clamp(value, low, std::nextafter(high, low));
  for (int digits = 4; digits < 17; ++digits) {
    std::string text = format("%.*g", digits, inside);
    const double rounded = parse_double(text).value_or(high);
    if (rounded >= low && rounded < high) return text;
  }
  return format("%.17g", inside);
}

// Values that a recipe reads alike have one meaning: 0.001 and 1e-3, true and True.
std::string meaning_of(const std::string& value) {
  if (const auto number = parse_double(value)) return number_text(*number == 0 ? 0 : *number);
  std::string lower = value;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower == "true" || lower == "false" ? lower : value;
}

// `place` is the prefix of messages about an axis of the recipe.
void check_axis(const Axis& axis, const std::string& place) {
  if (axis.interval && !(axis.interval->first < axis.interval->second))
    throw UserError(str(place, "[sweep] ", axis.name, ": an interval needs a lower and a higher end"));
  if (axis.logarithmic && axis.interval && axis.interval->first <= 0)
    throw UserError(str(place, "[sweep] ", axis.name,
                        ": tag(log, interval(...)) needs an interval above 0, got one from ", axis.interval->first));
  std::map<std::string, std::string> seen;
  for (const std::string& value : axis.values) {
    const auto [first, fresh] = seen.emplace(meaning_of(value), value);
    if (!fresh)
      throw UserError(str(place, "[sweep] ", axis.name, " has the value ", value, " twice",
                          first->second == value ? "" : ", once as " + first->second));
  }
}

void note_places(const SweepAxis& axis, std::map<std::string, OverridePlace>& places) {
  if (axis.key_mark.file.empty()) return;
  const bool each = axis.marks.size() == axis.values.size();
  for (size_t i = 0; i < axis.values.size(); ++i)
    places[axis.override_of(axis.values[i])] = {axis.key_mark, axis.marks[each ? i : 0]};
  if (axis.interval) places[axis.key] = {axis.key_mark, axis.marks[0]};
}

}  // namespace

Space read_space(const std::string& recipe_file, const ComposeOptions& options) {
  Space space;
  for (const SweepAxis& found : sweep_axes(recipe_file, options)) {
    note_places(found, space.places);
    if (found.deletes || (!found.interval && found.values.size() == 1)) {
      space.fixed.push_back(found.override_of(found.values.empty() ? "" : found.values[0]));
      continue;
    }
    Axis axis{found.key, found.values, found.interval, false};
    for (const std::string& tag : found.tags) axis.logarithmic = axis.logarithmic || tag == "log";
    check_axis(axis, found.key_mark.file.empty() ? "" : to_string(found.key_mark) + ": ");
    space.axes.push_back(std::move(axis));
  }
  return space;
}

std::vector<Place> grid(const std::vector<Axis>& axes) {
  std::vector<Place> places{{}};
  for (const Axis& axis : axes) {
    if (axis.interval)
      throw UserError(
          str("[sweep] ", axis.name, "=interval(...) has no end of values, so it needs random points: --random N"));
    if (places.size() * axis.values.size() > kMostPoints)
      throw UserError(str("[sweep] more than ", kMostPoints, " points; --random N draws some of them"));
    places = continued(places, axis.values);
  }
  return places;
}

std::vector<Place> draw(const std::vector<Axis>& axes, int64_t count, int64_t seed) {
  std::vector<Place> places;
  std::set<Place> seen;
  const RandomKey key = RandomKey(static_cast<uint64_t>(seed)).fold("sweep");
  if (count > static_cast<int64_t>(kMostPoints))
    throw UserError(str("[sweep] --random ", count, ": a sweep has at most ", kMostPoints, " points"));
  // A space with enough points needs few tries. A space with too few points is refused after this number.
  const int64_t tries = 1000 + 100 * count;
  for (int64_t i = 0; i < tries && static_cast<int64_t>(places.size()) < count; ++i) {
    Place place;
    for (size_t a = 0; a < axes.size(); ++a) {
      const RandomKey own = key.fold(a);
      const auto index = static_cast<uint64_t>(i);
      place.push_back(axes[a].interval ? drawn_number(axes[a], own.uniform(index))
                                       : axes[a].values[own.below(index, axes[a].values.size())]);
    }
    if (seen.insert(place).second) places.push_back(std::move(place));
  }
  if (static_cast<int64_t>(places.size()) < count)
    throw UserError(str("[sweep] --random ", count, ": the axes have only ", places.size(),
                        " different points; leave --random out to run all of them"));
  return places;
}

}  // namespace lmx::app::sweep

// The points of a sweep, from overrides with several values.

namespace lmx::app {
namespace {

using config::at;

SweepAxis axis_of(const Override& o, const Sources& sources) {
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
  for (const Term& term : o.sweep->terms) axis.values.push_back(term.text);
  if (o.sweep->kind == Sweep::Kind::interval) axis.interval = {o.sweep->begin, o.sweep->end};
  if (o.sweep->kind == Sweep::Kind::glob) {
    const std::vector<std::string> options = sources.options(o.key);
    for (const std::string& name : options)
      if (matches_glob(name, o.sweep->include) && !matches_glob(name, o.sweep->exclude)) axis.values.push_back(name);
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
SweepAxis axis_of_param(const std::string& key, const Node& value, const Sources& sources) {
  if (value.kind == Node::Kind::list && value.items.empty())
    throw UserError(str(at(value.mark, "sweep.params"), key, " has no values; an empty list as its value is [[]]"));
  std::vector<std::string> texts;
  std::vector<Mark> marks;
  for (const Node& item : value.items) {
    texts.push_back(value_text(item));
    marks.push_back(item.mark);
  }
  if (marks.empty()) marks.push_back(value.mark);
  const std::string text = value.kind == Node::Kind::list     ? config::join(texts, ",")
                           : value.kind == Node::Kind::scalar ? value.text
                                                              : value_text(value);
  try {
    SweepAxis axis = axis_of(parse_override(str(key, "=", text)), sources);
    axis.key_mark = config::key_place(value);
    axis.marks = std::move(marks);
    return axis;
  } catch (const UserError& e) {
    throw UserError(str(at(value.mark, "sweep.params"), e.what()));
  }
}

std::vector<SweepAxis> recipe_axes(const Node* params, const Sources& sources) {
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
  Inputs inputs(recipe_file, options.search_path);
  const auto axes_with = [&](const Node* params) {
    std::vector<SweepAxis> more;
    for (const std::string& text : options.overrides) more.push_back(axis_of(parse_override(text), inputs.sources));
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
  for (const MergeStep& step : expand_defaults(inputs.recipe, inputs.sources, inputs.groups).steps)
    merge_at(tree, step.package, step.source->content);
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
    std::vector<std::string> overrides;
    for (const std::string& value : axis.values) overrides.push_back(axis.override_of(value));
    points = sweep::continued(points, overrides);
  }
  return points;
}

}  // namespace lmx::app
