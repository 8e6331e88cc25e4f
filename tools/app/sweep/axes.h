// What a sweep varies, and the overrides of its points.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lmx/config.h"

namespace lmx_cli::sweeps {

inline constexpr size_t kMostPoints = 100'000;  // of a sweep

// A key with its values, as override texts.
struct Axis {
  std::string name;  // "optimizer.lr", "+experiment", "seed"
  std::vector<std::string> values;
  std::optional<std::pair<double, double>> interval;  // any number in [first, second); no values
  bool logarithmic = false;                           // of the interval: drawn so that each decade is as likely
};

// Axes of several values, and the overrides that all points have.
struct Space {
  std::vector<Axis> axes;
  std::vector<std::string> fixed;
  // Where the recipe has the overrides that it has, by their text; those of an interval by its axis.
  std::map<std::string, lmx::OverridePlace> places;
};

// From the `sweep.params` of the recipe and its files, and the overrides of the command line. UserError: an override
// that cannot be read.
Space read_space(const std::string& recipe_file, const lmx::ComposeOptions& options);

// One point: a value of each axis.
using Place = std::vector<std::string>;

// Every combination, the last axis fastest. UserError: an interval, which a grid cannot have; too many points.
std::vector<Place> grid(const std::vector<Axis>& axes);

// `count` different points, each axis drawn by itself: the same for the same seed, and the first of more points. A
// number of an interval has four significant digits. UserError: fewer than `count` different points.
std::vector<Place> draw(const std::vector<Axis>& axes, int64_t count, int64_t seed);

}  // namespace lmx_cli::sweeps
