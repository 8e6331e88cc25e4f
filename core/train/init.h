// `init:` of a recipe: parameters that start as those of another run or file, and parameters that are never updated.
#pragma once

#include <string>
#include <vector>

#include "lmx/train.h"
#include "train/components.h"

namespace lmx::train {

// The start of each parameter, for people and for provenance.json.
struct InitReport {
  struct Kept {
    std::string name, why;
  };
  std::string path, sha256;         // the checkpoint or file that was read, and its hash; "": init.from is not set
  std::vector<std::string> taken;   // parameters that start from there
  std::vector<std::string> partly;  // of those the tables of which only some rows do: "embedding.weight: 41 of 60 rows"
  std::vector<Kept> kept;           // parameters that keep their own first values
  std::vector<std::string> unused;  // tensors there without a parameter here: "lstm.1.bias (64)"
  std::vector<std::string> frozen;
  int64_t frozen_values = 0;
  bool nothing() const { return path.empty() && frozen.empty(); }
};

// Sets `frozen` of the parameters that init.freeze names. UserError: no regular expression, one that names no
// parameter, or all of them.
void mark_frozen(std::vector<ParameterSpec>& specs, const InitConfig& init);

// Copies the values that fit into `params`; null: only looks what would fit. A value fits a parameter of its name and
// shape. The rows of a table with a row for each word are matched by word where the vocabularies differ and the
// other one is known. `vocabulary` null: structure only, as of a dry run. UserError: nothing there, a damaged file,
// a pattern that names no parameter, no value that fits. RunError: a value that is no finite number.
LMX_API InitReport take_parameters(const InitConfig& init, const std::vector<ParameterSpec>& specs,
                                   const Vocabulary* vocabulary, ParameterStore* params);

// Lines for people.
LMX_API std::vector<std::string> describe(const InitReport& report);

// RunError where a value is NaN or infinite: such a model computes nothing. `from` names the file or checkpoint.
LMX_API void require_finite(const StateDict& values, const std::string& from);

}  // namespace lmx::train
