// A finished or interrupted run, read back: for evaluation and generation.
#pragma once

#include <memory>
#include <string>

#include "train/components.h"
#include "train/vocabulary_mark.h"

namespace lmx::train {

struct LMX_API SavedRun {
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

// What `which` names: a checkpoint of the run by find_checkpoint, else a path of a checkpoint's folder or of a
// safetensors file with parameters. UserError where it is neither.
LMX_API std::string find_parameters(const std::string& directory, const std::string& which);
// The parameters at such a path; `averages` are those that a run keeps under train.ema, where `path` has some.
struct StoredParameters {
  StateDict values, averages;
  int64_t step = 0;
  VocabularyMark vocabulary;
};
LMX_API StoredParameters load_stored(const std::string& path, const std::shared_ptr<Allocator>& allocator);

// The recipe that config.yaml of `directory` holds.
LMX_API Recipe recipe_of_run(const std::string& directory);

}  // namespace lmx::train
