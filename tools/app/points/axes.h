// The axes of a sweep, and the overrides of its points.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/compose/compose.h"
#include "lmx/config.h"

namespace lmx_cli::sweeps {

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
  std::map<std::string, lmx::OverridePlace> places;
};

// Reads `sweep.params` of the recipe and its files, and the overrides of the command line. UserError: an override that
// cannot be read.
Space read_space(const std::string& recipe_file, const lmx::ComposeOptions& options);

// One point: a value of each axis.
using Place = std::vector<std::string>;

// Returns every combination; the last axis varies fastest. UserError: an interval, which a grid cannot contain, or too
// many points.
std::vector<Place> grid(const std::vector<Axis>& axes);

// Samples `count` different points, each axis independently. The same seed gives the same points, and a larger `count`
// only appends points. A number from an interval has four significant digits. UserError: fewer than `count` different
// points.
std::vector<Place> draw(const std::vector<Axis>& axes, int64_t count, int64_t seed);

}  // namespace lmx_cli::sweeps
