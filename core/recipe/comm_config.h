// `comm:` of a recipe: the kind of the group of ranks and their number.
#pragma once

#include <memory>
#include <string>

#include "lmx/comm.h"
#include "recipe/recipe.h"

namespace lmx {

// `comm:` with all defaults. Its `name` is `self`, which is built in, or a plugin of kind comm.
Node full_comm_config(const Node& comm, const std::string& path);
// The number of ranks that `comm:` sets; 0: the number that the launcher started.
int64_t comm_ranks(const Node& comm, const std::string& path);
// The nodes of that many ranks, as the key `ranks_per_node` of `comm:` sets them; without it one node.
RankNodes comm_nodes(const Node& comm, const std::string& path, int ranks);
// The number of ranks of this process that compute at the same time, as the key `at_once` of `comm:` sets it; 0: the
// group chooses it.
int64_t comm_at_once(const Node& comm, const std::string& path);
CommEnv comm_env(const Recipe& recipe, const std::vector<std::string>& command_line);
// Whether the ranks of `comm:` are threads of this process.
bool in_one_process(const Node& comm, const std::string& path);
// The key of `comm:` that lets sums be added in an order that is not fixed; "": rank order.
std::string unordered_sums(const Node& comm, const std::string& path);
std::unique_ptr<CommGroup> make_comm_group(const Node& comm, const std::string& path, const CommEnv& env);

}  // namespace lmx
