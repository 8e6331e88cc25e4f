// What must be the same on every rank, compared before a run begins.
#pragma once

#include <string>
#include <vector>

#include "lmx/comm.h"

namespace lmx {

// One thing that ranks have to agree on. Where both texts are YAML maps, a difference is told by key.
struct Agreed {
  std::string what;  // "recipe", "build", "plugin sync/unique"
  std::string text;  // of this rank
};

// Collective: the texts of every rank against rank 0's. All ranks throw the same UserError, which names the first rank
// that differs and what differs: "rank 2 runs another recipe: optimizer.lr is 0.1 there, 0.2 on rank 0".
void check_equal_everywhere(Communicator& comm, const std::vector<Agreed>& own);

}  // namespace lmx
