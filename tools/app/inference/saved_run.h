// A finished or interrupted run, read back: for evaluation and generation.
#pragma once

#include <memory>
#include <string>

#include "app/runs/stored_parameters.h"
#include "recipe/components.h"

namespace lmx::train {

struct SavedRun {
  // UserError: no run, no such checkpoint, damaged, a plugin that is gone, a vocabulary that does not match the
  // checkpoint. `vocabulary`: the data's, or the run's own. `which`: last, best, a step, or a path.
  SavedRun(const std::string& directory, const Recipe& recipe, const Vocabulary& vocabulary, const std::string& which);

  std::unique_ptr<Communicator> comm;  // of one rank
  Context ctx;                         // for inference: no tape, no noise
  Network network;
  ParameterStore params;   // the averages where the run keeps them
  int64_t step = 0;        // 0 of a file of parameters alone
  std::string checkpoint;  // its folder or file
};

// The recipe that config.yaml of `directory` holds.
Recipe recipe_of_run(const std::string& directory);

}  // namespace lmx::train
