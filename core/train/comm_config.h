// `comm:` of a recipe: which group of ranks, how many.
#pragma once

#include <memory>
#include <string>

#include "lmx/comm.h"

namespace lmx::train {

// `comm:` with every default; its `name` is `self`, which is built in, or a plugin of kind comm.
LMX_API Node full_comm_config(const Node& comm, const std::string& path);
// Ranks that `comm:` asks for; 0: as many as the launcher started.
LMX_API int64_t comm_ranks(const Node& comm, const std::string& path);
LMX_API std::unique_ptr<CommGroup> make_comm_group(const Node& comm, const std::string& path, const CommEnv& env);

}  // namespace lmx::train
