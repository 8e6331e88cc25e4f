// A finished or interrupted run, loaded for evaluation and generation, and the mean of its checkpoints.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "app/runs/stored_parameters.h"
#include "lmx/model.h"
#include "recipe/components.h"
#include "recipe/recipe.h"

namespace lmx::app {

// A finished or interrupted run, loaded for evaluation and generation.
struct SavedRun {
  // `vocabulary`: of the data, or the run's own. `which`: last, best, a step, or a path. UserError: no run, no such
  // checkpoint, a damaged checkpoint, a missing plugin, a vocabulary that does not match the checkpoint.
  SavedRun(const std::string& directory, const Recipe& recipe, const Vocabulary& vocabulary, const std::string& which);

  std::unique_ptr<Communicator> comm;  // has one rank
  Context ctx;                         // for inference: no tape, no noise
  Network network;
  ParameterStore params;   // the EMA parameters if the run keeps them
  int64_t step = -1;       // -1: only a file of parameters was loaded
  std::string checkpoint;  // its folder or file
  int64_t longest;         // tokens of the longest sequence that the model reads

  std::string origin() const { return step < 0 ? checkpoint : "step " + std::to_string(step); }  // for people
};

inline constexpr int64_t kStatePiece = 512;  // steps of a text that a model with a state reads at a time

// Returns the number of tokens of the longest sequence that the model reads.
int64_t longest_of(const Node& model);

// Returns the recipe in config.yaml of `directory`. `device`: where to compute instead of on the run's own device; "":
// on the run's own.
Recipe recipe_of_run(const std::string& directory, const std::string& device = "");

// Finds a tensor, and a unit, of a model's recurrent state by name.

// Returns the name of the tensor that `wanted` refers to: a tensor's name such as "lstm.0.c", or `cell` or `hidden` for
// the tensor of the last layer. A layer's tensors end in `.c` (cells), or in `.h` or `.s` (the output of the layer),
// after its number. If a model has no cells, `cell` returns its hidden state, too. UserError: an unknown name; the
// message lists the names.
std::string state_name(const ModelState& state, const std::string& wanted);

// Returns the number of units per sequence in `name`. UserError: `unit` (-1: no check) is not among them.
int64_t state_units(const ModelState& state, const std::string& name, int64_t unit = -1);

// Averages of checkpoints: `lmx average`.

// Name of the file in a run's folder that contains the mean of its last checkpoints.
inline constexpr const char* kMeanFile = "mean.safetensors";
// Returns the folders of a run's last `most` checkpoints, oldest first. Returns all folders if the run keeps fewer.
std::vector<std::string> last_checkpoints(const std::string& run, int64_t most);
// The checkpoints to average: either the paths in `checkpoints` (checkpoints or files), or the last or the best (by
// validation) checkpoints of `run`.
struct AverageOptions {
  std::vector<std::string> checkpoints;
  std::string run;
  int64_t last = 0, best = 0;
};
// Writes the mean of their parameters to `output` as safetensors. Each mean is summed in f64 and rounded once. Returns
// the checkpoints. UserError: no checkpoints, fewer than requested, or parameters whose names, shapes or types differ.
std::vector<std::string> average_checkpoints(const AverageOptions& options, const std::string& output);

}  // namespace lmx::app
