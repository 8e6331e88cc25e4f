#include "app/points/axes.h"

#include "app/compose/compose.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "app/points/grid.h"
#include "base/text.h"
#include "lmx/config.h"
#include "lmx/error.h"
#include "lmx/random.h"

namespace lmx_cli::sweeps {
namespace {

using lmx::str;
using lmx::UserError;

std::string drawn_number(const Axis& axis, double uniform) {
  const auto [low, high] = *axis.interval;
  const double value = axis.logarithmic ? low * std::pow(high / low, uniform) : low + (high - low) * uniform;
  char text[48];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

// Values that a recipe reads alike have one meaning: 0.001 and 1e-3, true and True.
std::string meaning_of(const std::string& value) {
  if (const auto number = lmx::parse_double(value)) return lmx::number_text(*number == 0 ? 0 : *number);
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

void note_places(const lmx::SweepAxis& axis, std::map<std::string, lmx::OverridePlace>& places) {
  if (axis.key_mark.file.empty()) return;
  const bool each = axis.marks.size() == axis.values.size();
  for (size_t i = 0; i < axis.values.size(); ++i)
    places[axis.override_of(axis.values[i])] = {axis.key_mark, axis.marks[each ? i : 0]};
  if (axis.interval) places[axis.key] = {axis.key_mark, axis.marks[0]};
}

}  // namespace

Space read_space(const std::string& recipe_file, const lmx::ComposeOptions& options) {
  Space space;
  for (const lmx::SweepAxis& found : lmx::sweep_axes(recipe_file, options)) {
    note_places(found, space.places);
    if (found.deletes || (!found.interval && found.values.size() == 1)) {
      space.fixed.push_back(found.override_of(found.values.empty() ? "" : found.values[0]));
      continue;
    }
    Axis axis{found.key, found.values, found.interval, false};
    for (const std::string& tag : found.tags) axis.logarithmic = axis.logarithmic || tag == "log";
    check_axis(axis, found.key_mark.file.empty() ? "" : lmx::to_string(found.key_mark) + ": ");
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
    std::vector<Place> longer;
    for (const Place& place : places) {
      for (const std::string& value : axis.values) {
        longer.push_back(place);
        longer.back().push_back(value);
      }
    }
    places = std::move(longer);
  }
  return places;
}

std::vector<Place> draw(const std::vector<Axis>& axes, int64_t count, int64_t seed) {
  std::vector<Place> places;
  std::set<Place> seen;
  const lmx::RandomKey key = lmx::RandomKey(static_cast<uint64_t>(seed)).fold("sweep");
  if (count > static_cast<int64_t>(kMostPoints))
    throw UserError(str("[sweep] --random ", count, ": a sweep has at most ", kMostPoints, " points"));
  // A space with enough points needs few tries. A space with too few points is refused after this number.
  const int64_t tries = 1000 + 100 * count;
  for (int64_t i = 0; i < tries && static_cast<int64_t>(places.size()) < count; ++i) {
    Place place;
    for (size_t a = 0; a < axes.size(); ++a) {
      const lmx::RandomKey own = key.fold(a);
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

}  // namespace lmx_cli::sweeps
