// The effects of `init:` in a recipe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lmx::train {

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

}  // namespace lmx::train
