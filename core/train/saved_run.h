// A finished or interrupted run, read back: for evaluation and generation.
#pragma once

#include <memory>
#include <string>

#include "train/components.h"

namespace lmx::train {

struct LMX_API SavedRun {
  // UserError: no run, no such checkpoint, damaged, a plugin that is gone. `vocabulary`: the data's, or the run's own.
  SavedRun(const std::string& directory, const Recipe& recipe, const Vocabulary& vocabulary,
           const std::string& checkpoint);

  std::unique_ptr<Communicator> comm;  // of one rank
  Context ctx;  // for inference: no tape, no noise
  Network network;
  ParameterStore params;  // the averages where the run keeps them
  int64_t step = 0;
};

// The recipe that config.yaml of `directory` holds.
LMX_API Recipe recipe_of_run(const std::string& directory);

}  // namespace lmx::train
