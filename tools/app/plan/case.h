// One variant of a recipe on a number of ranks: its sizes, from which its times on any links follow. And how the choice
// of a variant depends on the bandwidth between nodes.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/plan/plan.h"
#include "app/plan/step.h"
#include "app/plan/variants.h"
#include "recipe/exchanger.h"
#include "recipe/recipe.h"

namespace lmx::app::plan {

class Case {
 public:
  Case(const Variant& variant, const std::string& name, int ranks, const Request& request);
  int ranks() const { return shares_.ranks; }
  bool one_node() const { return shares_.ranks <= machine_.links.ranks_per_node; }
  // `speed`: see Plan::speed. `network_gb_s`: the bandwidth between nodes; 0: the machine's.
  Row row(double speed, double network_gb_s = 0) const;
  const Recipe& recipe() const { return recipe_; }
  const Shares& shares() const { return shares_; }
  const std::optional<ChosenPass>& fit() const { return fit_; }
  bool divides_values() const { return !divided_.empty(); }
  // Returns whether the machine's file has measured exchanges of each strategy that exchanges gradients here. Workers
  // of a server are not planned by them.
  bool exchange_is_measured() const;

 private:
  void plan_workers(const Exchanger& sync, const Network& network);
  // Adds times and bytes of the workers of a server. `work`: with the speed of the device.
  void add_workers(Row& row, const Work& work, const LinksConfig& links, double update_s) const;

  // An asynchronous variant: the exchange of a worker, that of a worker alone, and the durations of steps.
  struct Served {
    WorkerBytes exchange, alone;
    WorkerTimes times;
  };

  Recipe recipe_;
  Shares shares_;
  RankCount count_;
  std::optional<ChosenPass> fit_;
  Work work_;
  std::map<std::string, std::string> strategies_;  // by rule: strategy_text()
  std::set<std::string> divided_;                  // rules_with_divided_values()
  Machine machine_;
  Algorithm algorithm_;
  double fill_ = 1;
  Spread spread_;
  bool overlap_ = true;
  std::optional<Served> served_;
};

// Fills Plan::curves and Plan::crossings from the variants on the largest number of ranks. Variants that do not fit
// into the memory are left out. Both stay empty if all ranks are on one node.
void add_bandwidths(Plan& plan, const std::vector<std::pair<std::string, const Case*>>& variants);

}  // namespace lmx::app::plan
