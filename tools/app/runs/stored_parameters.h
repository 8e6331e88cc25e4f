// The parameters in a run or a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lmx/parameters.h"
#include "runfiles/vocabulary_mark.h"

namespace lmx::train {

// Returns the folder of checkpoint "last", "best" or a step. UserError: there is none; the message lists the
// checkpoints.
std::string find_checkpoint(const std::string& directory, const std::string& which);

// Returns the path that `which` refers to: a checkpoint of the run (see find_checkpoint), otherwise a path of a
// checkpoint's folder or of a safetensors file with parameters. UserError: it is neither.
std::string find_parameters(const std::string& directory, const std::string& which);
// The parameters at such a path. `averages` are the EMA parameters (train.ema), if `path` contains some.
struct StoredParameters {
  StateDict values, averages;
  int64_t step = 0;
  VocabularyMark vocabulary;
};
StoredParameters load_stored(const std::string& path, const std::shared_ptr<Allocator>& allocator);

// RunError: a value is NaN or infinite, so the model cannot be used. `from` names the file or checkpoint.
void require_finite(const StateDict& values, const std::string& from);

}  // namespace lmx::train
