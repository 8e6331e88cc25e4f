// The axes that the overrides of a sweep span, and the runs on them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/compose/compose.h"
#include "lmx/config.h"

namespace lmx::app::sweep {

// The axes of a sweep, and the overrides of its points.

inline constexpr size_t kMostPoints = 100'000;  // points per sweep

// A key and its values in override syntax.
struct Axis {
  std::string name;  // "optimizer.lr", "+experiment", "seed"
  std::vector<std::string> values;
  std::optional<std::pair<double, double>> interval;  // if set: any number in [first, second), and `values` is empty
  bool logarithmic = false;  // samples the interval such that each decade has the same probability
};

// Axes with several values, and the overrides that apply to all points.
struct Space {
  std::vector<Axis> axes;
  std::vector<std::string> fixed;
  // Positions in the recipe of its overrides, by override text; for an interval, by the name of its axis.
  std::map<std::string, OverridePlace> places;
};

// Reads `sweep.params` of the recipe and its files, and the overrides of the command line. UserError: an override that
// cannot be read.
Space read_space(const std::string& recipe_file, const ComposeOptions& options);

// One point: a value of each axis.
using Place = std::vector<std::string>;

// Returns each of the points with each of the words behind it; the words vary fastest.
template <class Word>
std::vector<std::vector<Word>> continued(const std::vector<std::vector<Word>>& points, const std::vector<Word>& words) {
  std::vector<std::vector<Word>> longer;
  for (const std::vector<Word>& point : points)
    for (const Word& word : words) longer.emplace_back(point).push_back(word);
  return longer;
}

// Returns every combination; the last axis varies fastest. UserError: an interval, which a grid cannot contain, or too
// many points.
std::vector<Place> grid(const std::vector<Axis>& axes);

// Samples `count` different points, each axis independently. The same seed gives the same points, and a larger `count`
// only appends points. A number from an interval has four significant digits, or more if it would otherwise be outside.
// UserError: fewer than `count` different points.
std::vector<Place> draw(const std::vector<Axis>& axes, int64_t count, int64_t seed);

}  // namespace lmx::app::sweep

namespace lmx::app {

// The values that one override of a sweep gives to its key.
struct SweepAxis {
  std::string key;                                    // such as "optimizer.lr", "+experiment", "optim@enc"
  std::vector<std::string> values;                    // as written after `=`; one value if the key is not swept
  std::optional<std::pair<double, double>> interval;  // interval(a, b): any number in [a, b); `values` is empty
  std::vector<std::string> tags;                      // from tag(...)
  bool deletes = false;                               // `~key`: no value
  Mark key_mark;            // in the recipe's `sweep.params`; no file if the axis is an override of the command line
  std::vector<Mark> marks;  // places of the values in `sweep.params`: one for each value, or one for all
  std::string override_of(const std::string& value) const { return deletes ? key : key + "=" + value; }
};

// The merged `sweep` section of the recipe and of all files that its defaults list chooses; null if no file has one.
// The overrides choose the groups first, then `sweep.params` of the recipe's own file. If a group has several options,
// the first one is used. UserError as for compose().
Node sweep_section(const std::string& recipe_file, const ComposeOptions& options);

// The axes of that section's `params` (key: "1,2", or a list), then those of the overrides, in that order. A key that
// occurs again replaces its earlier axis. UserError: a wrong override, an empty glob, a deletion with several values.
std::vector<SweepAxis> sweep_axes(const std::string& recipe_file, const ComposeOptions& options);

// The overrides of every run of the grid; the last axis varies fastest. UserError: an interval, or more than `limit`
// runs.
std::vector<std::vector<std::string>> sweep_grid(const std::vector<SweepAxis>& axes, size_t limit = 100'000);

}  // namespace lmx::app
