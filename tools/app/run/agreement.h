// Compares the settings that must be equal on every rank before a run begins.
#pragma once

#include <string>
#include <vector>

#include "lmx/comm.h"

namespace lmx::app {

// A text that must be equal on all ranks. If both texts are YAML maps, messages name the first key that differs.
struct Agreed {
  std::string what;  // "recipe", "build", "plugin sync/unique"
  std::string text;  // of this rank
};

// Collective: compares the texts of every rank with rank 0's. If they differ, all ranks throw the same UserError. It
// names the first rank that differs and the difference: "rank 2 runs another recipe: optimizer.lr is 0.1 there, 0.2 on
// rank 0".
void check_equal_everywhere(Communicator& comm, const std::vector<Agreed>& own);

}  // namespace lmx::app
