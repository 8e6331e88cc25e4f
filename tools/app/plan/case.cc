#include "app/plan/case.h"

#include <algorithm>
#include <cmath>

#include "app/memory/outline.h"
#include "lmx/error.h"
#include "recipe/comm_config.h"

namespace lmx::plan {
namespace {

using namespace train;

// `comm:` with `ranks` processes. Ranks of a cluster are processes, also if the recipe's own are threads or one.
void set_ranks(Node& tree, int ranks) {
  const Mark mark{str("option '--ranks ", ranks, "'")};
  Node* comm = tree.find("comm");
  if (!comm || in_one_process(*comm, "comm") || !comm->find("name") || comm->find("name")->text == "self") {
    Node processes = Node::map(mark);
    processes.set("name", Node::string("mpi", mark));
    tree.set("comm", processes);
    comm = tree.find("comm");
  }
  comm->set("ranks", Node::scalar(std::to_string(ranks), mark));
}

// The ranks of each node; 0: the last node has fewer.
int nodes_of(const LinksConfig& links, int ranks) {
  const auto inner = static_cast<int>(std::min<int64_t>(links.ranks_per_node, ranks));
  return ranks % inner == 0 ? inner : 0;
}

Recipe read_on(Node tree, const std::string& name, int ranks, bool keeps_batch) {
  const int before = ranks_of(tree);
  set_ranks(tree, ranks);
  Recipe recipe = read_recipe(tree, name);
  if (!keeps_batch) recipe.batch.global = std::max<int64_t>(1, recipe.batch.global * ranks / before);
  return recipe;
}

}  // namespace

Case::Case(const Variant& variant, const std::string& name, int ranks, const Request& request)
    : recipe_(read_on(variant.tree, name, ranks, variant.keeps_batch)),
      machine_(variant.machine),
      algorithm_(variant.algorithm),
      fill_(request.fill),
      spread_{request.spread},
      overlap_(request.overlap) {
  machine_.device.require_products(compute_of(recipe_));
  const WordLaw law = request.law.value_or(zipf_law());
  if (SyncRules::asynchronous(recipe_.sync, "sync"))
    throw UserError("[plan] the workers of this recipe are asynchronous; lmx plan estimates steps of ranks in step");
  const Outline outline = outline_of(recipe_, ranks, nodes_of(machine_.links, ranks));
  const Network& network = outline.network;
  shares_ = outline.shares;
  for (const auto& [key, rule] : SyncRules::full_config(recipe_.sync, "sync").entries)
    strategies_[key] = strategy_text(rule);
  units_ = exchange_of(*outline.sync, network, shares_, law);
  memory_ = rank_memory(recipe_, network, shares_, communication_bytes(units_, ranks));
  work_ = work_of(recipe_, network, shares_, machine_.device, law, units_);
  if (const auto pass =
          machine_.device.pass(pass_text(recipe_), rules_text(recipe_), shares_.forward_tokens, shares_.length))
    work_.set_pass(1e-6 * pass->forward_us, 1e-6 * pass->backward_us);
}

Row Case::row(double speed, double network_gb_s) const {
  LinksConfig links = machine_.links;
  if (network_gb_s > 0) links.network.gb_s = network_gb_s;
  Row row;
  row.ranks = shares_.ranks;
  row.batch = recipe_.batch.global;
  row.step_tokens = static_cast<double>(shares_.step_tokens) * (shares_.pairs ? fill_ : 1);
  row.memory = memory_;
  row.out_of_memory = static_cast<double>(memory_.total()) > machine_.device.memory_gb * 1e9;
  Work work = work_;
  const double part = shares_.pairs ? speed * fill_ : speed;  // a pass over less tokens takes less time
  work.forward_s *= part;
  work.backward_s *= part;
  work.update_s *= speed;
  std::vector<UnitWork> units;
  for (const UnitPlan& unit : units_) {
    const Transfer moved =
        transfer({unit.sent, unit.sent_between_nodes, unit.collectives}, shares_.ranks, links, algorithm_);
    row.sent_bytes += unit.sent;
    row.node_bytes += moved.node_bytes;
    row.network_bytes += moved.network_bytes;
    double ready = 0;
    for (const std::string& name : unit.params) ready = std::max(ready, work_.ready_s.at(name));
    const double own = machine_.device.exchange_s(strategies_.at(unit.rule), shares_.ranks, unit.moved);
    const double delay = machine_.device.beside * own + links.node.delay_s(static_cast<double>(moved.node_bytes)) +
                         links.network.delay_s(static_cast<double>(moved.network_bytes));
    units.push_back({ready * part, moved.seconds, own, machine_.device.beside, delay});
  }
  row.time = step_time(work, units, shares_.ranks, spread_, overlap_);
  return row;
}

}  // namespace lmx::plan
