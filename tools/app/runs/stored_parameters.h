// The parameters in a run or a file, the vocabulary they were trained with, and the effects of `init:` in a recipe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmx/parameters.h"
#include "runfiles/vocabulary_mark.h"

namespace lmx::app {

// Returns the folder of checkpoint "last", "best" or a step. UserError: there is none; the message lists the
// checkpoints.
std::string find_checkpoint(const std::string& directory, const std::string& which);

// Returns the path that `which` refers to: a checkpoint of the run (see find_checkpoint), otherwise a path of a
// checkpoint's folder or of a safetensors file with parameters. UserError: it is neither.
std::string find_parameters(const std::string& directory, const std::string& which);
// The parameters at such a path. `averages` are the EMA parameters (train.ema), if `path` contains some.
struct StoredParameters {
  StateDict values, averages;
  int64_t step = -1;  // -1: a file of parameters, which has none
  VocabularyMark vocabulary;
};
StoredParameters load_stored(const std::string& path, const std::shared_ptr<Allocator>& allocator);

// RunError: a value is NaN or infinite, so the model cannot be used. `from` names the file or checkpoint.
void require_finite(const StateDict& values, const std::string& from);

// Returns the run that parameters belong to, according to their path: RUN/checkpoints/step-N, a file in it, or a file
// in RUN.
std::filesystem::path run_of(const std::string& checkpoint);

// Checks whether parameters were trained with the vocabulary that they are used with.

// Returns the vocabulary of the run whose folder contains `checkpoint`, if its mark is `mark`.
std::optional<Vocabulary> vocabulary_beside(const std::string& checkpoint, const VocabularyMark& mark);

// Checks parameters at `checkpoint` against the vocabulary of the run in `directory`. UserError: they were trained with
// another vocabulary; the message names the first entry that differs if the run of the checkpoint is available.
void check_vocabulary(const VocabularyMark& mark, const std::string& checkpoint, const Vocabulary& vocabulary,
                      const std::string& directory);
// The same for two checkpoints that are merged.
void check_one_vocabulary(const VocabularyMark& a, const std::string& checkpoint_a, const VocabularyMark& b,
                          const std::string& checkpoint_b);

// The effects of `init:` in a recipe.

// The initial value of each parameter, for the user and for provenance.json.
struct InitReport {
  struct Kept {
    std::string name, why;
  };
  std::string path, sha256;         // the checkpoint or file that was read, and its hash; "": init.from is not set
  std::vector<std::string> taken;   // parameters that start from this file
  std::vector<std::string> partly;  // tables of which only some rows start from it: "embedding.weight: 41 of 60 rows"
  std::vector<Kept> kept;           // parameters that keep their own initial values
  std::vector<std::string> unused;  // tensors of the file without a parameter here: "lstm.1.bias (64)"
  std::vector<std::string> frozen;
  int64_t frozen_values = 0;
  bool nothing() const { return path.empty() && frozen.empty(); }
};

}  // namespace lmx::app
