// The request of a sweep, and its points: recipes that are composed and checked before any of them runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/compose/compose.h"
#include "app/jobs/launcher.h"
#include "app/jobs/progress.h"
#include "app/run/schema.h"
#include "app/sweep/grid.h"

namespace lmx::app::sweep {

// The number that evaluates a run: from the last record of `split` with `key`, or from the line `split key` that it
// printed.
struct Metric {
  std::string split = "valid", key = "ppl";
  bool maximize = false;
  std::string text() const { return split + " " + key; }
  std::string name() const { return split + "." + key; }  // in the format of --metric
  bool better(double a, double b) const { return maximize ? a > b : a < b; }
};
// "ppl", "valid.ppl", "valid ppl", "test BLEU", "train.rows/embedding.weight". UserError: no split or no key.
Metric parse_metric(const std::string& text, bool maximize);

// Successive halving: after `min` steps the best 1/eta of the points continue, up to eta times as many steps, and so
// on.
struct Halving {
  int64_t eta = 0, min = 0;  // eta 0: none
};
Halving parse_halving(const std::string& text);  // "eta=3,min=100"
void check_halving(const Halving& halving);      // UserError: an eta or a min that no sweep can have

// "3": 1, 2, 3. "1,5,9": these.
std::vector<int64_t> parse_seeds(const std::string& text);

// UserError: a number that no run has (the message suggests the nearest), or one that is available too late for
// `halving`.
void check_metric(const Metric& metric, const Halving& halving);

struct Request {
  std::string recipe;
  std::vector<std::string> overrides, config_dirs, plugin_dirs;
  std::vector<int64_t> seeds;  // empty: the seed of the recipe
  std::vector<int64_t> ranks;  // numbers of virtual ranks; empty: the recipe's `comm`
  int64_t random = 0;          // number of points to sample; 0: the grid
  int64_t random_seed = 0;
  Metric metric;
  Halving halving;
};

// Returns the options with which a request's recipe is composed, including the plugin folders.
ComposeOptions compose_options(const Request& request);

struct Point {
  std::string id;            // "03-optimizer.lr=1e-3-seed=2"
  Place place;               // a value of each axis
  std::string yaml;          // the recipe with every default, as it runs
  std::string sha256;        // of `yaml`, as sweep.json states it; "": not stated
  size_t configuration = 0;  // equal for points that differ only in their seed
  // Values from the recipe:
  int64_t steps = 0;   // 0: `epochs` limits the training
  std::string epochs;  // train.epochs
  jobs::Demand demand;
  jobs::Length length;
  std::string parameters;  // number of parameters, as printed by the dry run; "" without a dry run
  std::string memory;      // memory per rank, likewise
  int64_t parameter_count = 0, memory_bytes = 0;  // the same two values as numbers
  bool translates = false;                        // translates after the training (train.final_bleu)
};

// Fills the fields of a point that come from its recipe. UserError, which names `file`: the text is no recipe.
void read_resources(Point& point, const std::string& file);

struct Plan {
  Request request;
  std::string name;        // the recipe's file without .yaml
  std::string directory;   // the working folder in which the sweep began; "": not stated
  std::vector<Axis> axes;  // the last one is `seed` if the request has seeds
  std::vector<Point> points;
  std::vector<std::string> missing_data;    // missing data of the points, each problem once
  std::vector<std::string> missing_memory;  // points that need more memory than this machine or its device has
  std::vector<std::string> missing_device;  // why this machine lacks a device of the points, each reason once
  std::vector<std::string> environment;     // environment_values() of a new plan
  bool has_seeds() const { return !request.seeds.empty(); }
  size_t index_of(const std::string& id) const {  // points.size() if there is none
    size_t i = 0;
    while (i < points.size() && points[i].id != id) ++i;
    return i;
  }
  // "optimizer.lr=1e-3 seed=2".
  std::string text_of(const Point& point) const;
};

// The settings in the recipe's `sweep:`, for options that the command line does not set.
struct Given {
  std::optional<std::string> seeds, metric, halving;
  std::optional<bool> maximize;
  std::optional<int64_t> random;
};
Request make_request(Request base, const Given& given);

// Returns the schema of a recipe's `sweep:`.
SchemaPart sweep_schema();

// Composes every point. UserError: all errors of all points, each once. If `findings` is given, errors are added there
// instead, and a point with an error has an empty `yaml`. REQUIRES: plugins are loaded.
Plan make_plan(const Request& request, std::vector<std::string>* findings = nullptr);

}  // namespace lmx::app::sweep
