#include "recipe/comm_config.h"

#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/plugin.h"

namespace lmx {
namespace {

struct SelfConfig {
  int64_t ranks = 1;
  void fields(Fields& f) { f.field("ranks", ranks, "ranks of the run: one", kPositive); }
};

bool is_self(const Node& comm) {
  const Node* name = comm.find("name");
  return !name || name->text == "self";
}

}  // namespace

Node full_comm_config(const Node& comm, const std::string& path) {
  if (!is_self(comm)) return full_component(PluginKind::comm, comm, path);
  const SelfConfig config = read_config<SelfConfig>(comm, path);
  const Node* ranks = comm.find("ranks");
  if (config.ranks != 1)
    throw UserError(str(config::at(ranks->mark, config::join_path(path, "ranks")),
                        "one rank is all that comm `self` has, which a recipe without comm.name takes; for ",
                        config.ranks, " ranks give comm.name: virtual (threads of one process) or mpi (processes)"));
  Node full = Node::map(comm.mark);
  full.set("name", Node::string("self"));
  const Node fields = write_config(config);
  for (const auto& [key, value] : fields.entries) full.set(key, value);
  return full;
}

namespace {

int64_t number_of(const Node& comm, const std::string& path, const char* key, int64_t without) {
  const Node full = full_comm_config(comm, path);
  const Node* value = full.find(key);
  return value ? parse_int(value->text).value_or(without) : without;
}

}  // namespace

int64_t comm_ranks(const Node& comm, const std::string& path) {
  return number_of(comm, path, "ranks", 1);
}

RankNodes comm_nodes(const Node& comm, const std::string& path, int ranks) {
  return {ranks, number_of(comm, path, "ranks_per_node", 0)};
}

int64_t comm_at_once(const Node& comm, const std::string& path) {
  return number_of(comm, path, "at_once", 0);
}

CommEnv comm_env(const Recipe& recipe, const std::vector<std::string>& command_line) {
  return {static_cast<int>(recipe.threads), command_line, recipe.deterministic};
}

bool in_one_process(const Node& comm, const std::string& path) {
  return is_self(comm) || !trait_of(PluginKind::comm, comm, path, trait::kOneProcess).empty();
}

std::string unordered_sums(const Node& comm, const std::string& path) {
  return is_self(comm) ? "" : trait_of(PluginKind::comm, comm, path, trait::kUnorderedSums);
}

std::unique_ptr<CommGroup> make_comm_group(const Node& comm, const std::string& path, const CommEnv& env) {
  if (is_self(comm)) return make_self_group(env.threads);
  const PluginInfo& plugin = Registry::instance().find(PluginKind::comm, comm, path);
  return create<CommFactory>(plugin, comm, path, env);
}

}  // namespace lmx
