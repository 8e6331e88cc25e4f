// One rank of a group in which a sync strategy is checked.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "conformance/conformance.h"
#include "conformance/steps.h"
#include "lmx/row_sync.h"
#include "sync/unit_queue.h"

namespace lmx_cli::check {

using Values = std::vector<std::vector<float>>;  // dense values of each parameter
bool same_bits(const Values& a, const Values& b);
// Returns a hash of 53 bits, which a double represents exactly.
uint64_t digest(const Values& values);

// Creates a group of virtual ranks. `per_node`: ranks of each node; 0: one node.
std::unique_ptr<lmx::CommGroup> virtual_group(int ranks, int per_node = 0);

// The gradients of a step: those of step `of` (see own_of()), multiplied by `factor`.
struct Given {
  int of = 0;
  float factor = 1;
};

// The exchange of one unit in one step.
struct UnitTraffic {
  std::string name;  // the unit's first parameter
  int64_t sent = 0, received = 0, collectives = 0;
  int64_t sent_between_nodes = 0, received_between_nodes = 0;
  lmx::Traffic traffic = {};  // the argument of expected_bytes() and collectives()
};

// The strategy and the parameters of one rank.
class RankRun {
 public:
  RankRun(lmx::Communicator& comm, const Subject& s);

  bool server() { return rule_->server() != nullptr; }  // then strategy() must not be called
  lmx::SyncStrategy& strategy() { return *rule_->strategy(); }
  lmx::Context& ctx() { return ctx_; }
  const std::vector<std::vector<std::string>>& units() const { return units_; }

  // Runs begin_step() and reduce() of every unit. A step ends with after_step(), or with discard() and after_step() if
  // its update is left out.
  void reduce(int step) { reduce(step, {step, 1}); }
  void reduce(int step, const Given& given);
  void after_step() { rule_->after_step(ctx_); }
  void discard() { rule_->discard(); }
  // reduce() and after_step().
  void step(int step, const Given& given);

  // The following functions describe the last reduce().
  const Values& values() const { return values_; }
  const lmx::Gradient& gradient(const std::string& name) const { return vars_.at(name).grad(); }
  const SelectedRows& selected() const { return selected_; }
  const std::vector<UnitTraffic>& exchanged() const { return exchanged_; }
  lmx::SentBytes sent_bytes(const lmx::Traffic& traffic) const { return rule_->sent_bytes(traffic); }
  int64_t expected_bytes(const lmx::Traffic& traffic, int to) const { return rule_->expected_bytes(traffic, to); }
  int64_t expected_collectives(const lmx::Traffic& traffic) const { return rule_->collectives(traffic); }

  // Returns the states of all ranks, as load() receives them from a checkpoint. Collective.
  std::vector<lmx::StateDict> gather_states();

 private:
  void post_unit(const Given& given, const std::vector<std::string>& names);
  void reduce_unit(const Given& given, const std::vector<lmx::ParameterSpec>& specs);
  SelectedRows gather_selected();
  std::vector<float> dense(const lmx::ParameterSpec& p);

  lmx::Communicator& comm_;
  lmx::Context ctx_;
  std::vector<lmx::ParameterSpec> specs_;
  std::unique_ptr<lmx::SyncRule> rule_;
  std::map<std::string, lmx::Var> vars_;
  std::vector<std::vector<std::string>> units_;
  Values values_;
  SelectedRows selected_;
  std::vector<UnitTraffic> exchanged_;
  lmx::train::UnitQueue queue_;  // ends before what its jobs use
};

}  // namespace lmx_cli::check
