// What `init:` of a recipe has done.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace lmx::train
