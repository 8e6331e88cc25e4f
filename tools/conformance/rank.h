// One rank of a group in which `lmx plugins check` tests a sync strategy.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "conformance/conformance.h"
#include "conformance/steps.h"
#include "lmx/row_sync.h"

namespace lmx_cli::check {

using Values = std::vector<std::vector<float>>;  // dense values of each parameter
bool same_bits(const Values& a, const Values& b);

// Creates a group of virtual ranks.
std::unique_ptr<lmx::CommGroup> virtual_group(int ranks);

// The gradients of a step: those of step `of` (see own_of()), multiplied by `factor`.
struct Given {
  int of = 0;
  float factor = 1;
};

// The strategy and the parameters of one rank.
class RankRun {
 public:
  RankRun(lmx::Communicator& comm, const Subject& s);

  bool server() { return rule_->server() != nullptr; }  // then strategy() must not be called
  lmx::SyncStrategy& strategy() { return *rule_->strategy(); }
  lmx::Context& ctx() { return ctx_; }
  const std::vector<std::vector<std::string>>& units() const { return units_; }

  // Runs a step: begin_step(), reduce() of every unit, after_step(). Returns "" or the error in the ledger.
  std::string step(int step) { return this->step(step, {step, 1}); }
  std::string step(int step, const Given& given);
  // The same with discard() before after_step(): the update of this step is left out.
  void discarded_step(int step, const Given& given);
  // The results of the last step's reduce().
  const Values& values() const { return values_; }
  const SelectedRows& selected() const { return selected_; }

 private:
  std::string reduce(int step, const Given& given);
  std::string reduce_unit(int step, const Given& given, const std::vector<std::string>& names);
  SelectedRows gather_selected();
  void give(lmx::Var& var, const Own& own, float factor);
  std::vector<float> dense(const lmx::ParameterSpec& p);

  lmx::Communicator& comm_;
  lmx::Context ctx_;
  std::vector<lmx::ParameterSpec> specs_;
  std::unique_ptr<lmx::SyncRule> rule_;
  std::map<std::string, lmx::Var> vars_;
  std::vector<std::vector<std::string>> units_;
  Values values_;
  SelectedRows selected_;
};

// Runs the checks "discard", "rescale" and, for a strategy that is checked with --approximate, "mean".
void check_feedback(Report& report, const Subject& subject);

}  // namespace lmx_cli::check
