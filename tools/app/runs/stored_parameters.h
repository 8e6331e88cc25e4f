// Parameters that a run, or a file, holds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lmx/parameters.h"
#include "runfiles/vocabulary_mark.h"

namespace lmx::train {

// The folder of checkpoint "last", "best" or a step. UserError listing what there is.
std::string find_checkpoint(const std::string& directory, const std::string& which);

// What `which` names: a checkpoint of the run by find_checkpoint, else a path of a checkpoint's folder or of a
// safetensors file with parameters. UserError where it is neither.
std::string find_parameters(const std::string& directory, const std::string& which);
// The parameters at such a path; `averages` are those that a run keeps under train.ema, where `path` has some.
struct StoredParameters {
  StateDict values, averages;
  int64_t step = 0;
  VocabularyMark vocabulary;
};
StoredParameters load_stored(const std::string& path, const std::shared_ptr<Allocator>& allocator);

// RunError where a value is NaN or infinite: such a model computes nothing. `from` names the file or checkpoint.
void require_finite(const StateDict& values, const std::string& from);

}  // namespace lmx::train
