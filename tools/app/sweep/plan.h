// What a sweep was asked for, and its points, each a recipe that is composed and checked before any of them runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/jobs/cores.h"
#include "app/run/schema.h"
#include "app/sweep/axes.h"

namespace lmx_cli::sweeps {

// Which number of a run counts: the last record of `split` that has `key`, or the line `split key` of what it printed.
struct Metric {
  std::string split = "valid", key = "ppl";
  bool maximize = false;
  std::string text() const { return split + " " + key; }
  bool better(double a, double b) const { return maximize ? a > b : a < b; }
};
// "ppl", "valid.ppl", "valid ppl", "test BLEU". UserError: more or fewer parts.
Metric parse_metric(const std::string& text, bool maximize);

// Successive halving: after `min` steps the best 1/eta of the points go on, to eta times as many steps, and so on.
struct Halving {
  int64_t eta = 0, min = 0;  // eta 0: none
};
Halving parse_halving(const std::string& text);  // "eta=3,min=100"

// "3": 1, 2, 3. "1,5,9": these.
std::vector<int64_t> parse_seeds(const std::string& text);

// UserError: a number that no run has, with the nearest; one that it has too late for `halving`.
void check_metric(const Metric& metric, const Halving& halving);

struct Request {
  std::string recipe;
  std::vector<std::string> overrides, config_dirs, plugin_dirs;
  std::vector<int64_t> seeds;  // none: the recipe's own
  int64_t random = 0;          // points to draw; 0: the grid
  int64_t random_seed = 0;
  Metric metric;
  Halving halving;
};

// The options with which a request's recipe is composed, the plugins' folders included.
lmx::ComposeOptions compose_options(const Request& request);

struct Point {
  std::string id;            // "03-optimizer.lr=1e-3-seed=2"
  Place place;               // a value of each axis
  std::string yaml;          // the recipe with every default, as it runs
  size_t configuration = 0;  // points that differ by nothing but their seed have the same
  // Of the recipe:
  int64_t steps = 0;   // 0: epochs decide
  std::string epochs;  // train.epochs
  jobs::Demand demand;
  std::string parameters;                         // their number, as the dry run tells it; "" where it was not made
  std::string memory;                             // of a rank, likewise
  int64_t parameter_count = 0, memory_bytes = 0;  // the same as numbers
  bool translates = false;                        // once it has trained (train.final_bleu)
};

// What the recipe of a point says of it.
void read_resources(Point& point);

struct Plan {
  Request request;
  std::string name;        // the recipe's file without .yaml
  std::vector<Axis> axes;  // the last is `seed` where there are seeds
  std::vector<Point> points;
  std::vector<std::string> missing_data;    // what is not there of the points' data, each problem once
  std::vector<std::string> missing_memory;  // points that need more memory than this machine has
  bool has_seeds() const { return !request.seeds.empty(); }
  size_t index_of(const std::string& id) const {  // points.size() where there is none
    size_t i = 0;
    while (i < points.size() && points[i].id != id) ++i;
    return i;
  }
  // "optimizer.lr=1e-3 seed=2".
  std::string text_of(const Point& point) const;
};

// What of a request the recipe's `sweep:` says, where the command line leaves it open.
struct Given {
  std::optional<std::string> seeds, metric, halving;
  std::optional<bool> maximize;
  std::optional<int64_t> random;
};
Request make_request(Request base, const Given& given);

// What a recipe's `sweep:` may hold.
lmx::SchemaPart sweep_schema();

// Composes every point. UserError with all mistakes of all points, each once. Plugins must have been loaded. Where
// `findings` is given, mistakes are put there instead; a point that has one keeps an empty `yaml`.
Plan make_plan(const Request& request, std::vector<std::string>* findings = nullptr);

}  // namespace lmx_cli::sweeps
