// One variant of a recipe on a number of ranks: its sizes, from which its times on any links follow.
#pragma once

#include <string>
#include <vector>

#include "app/plan/plan.h"
#include "recipe/recipe.h"

namespace lmx::plan {

class Case {
 public:
  // `tree`: the composed recipe without `machine`.
  Case(Node tree, const std::string& name, int ranks, bool keeps_batch, const Machine& machine, const Request& request);
  int ranks() const { return shares_.ranks; }
  // `speed`: see Plan::speed.
  Row row(const LinksConfig& links, Algorithm algorithm, double speed) const;
  const Recipe& recipe() const { return recipe_; }
  const Shares& shares() const { return shares_; }
  bool pairs() const { return shares_.pairs; }  // items of a batch are sub-batches of sentence pairs

 private:
  Recipe recipe_;
  Shares shares_;
  RankMemory memory_;
  Work work_;
  std::vector<UnitPlan> units_;
  const Machine* machine_;
  const Request* request_;
};

// The number of ranks in `comm:` of a composed recipe; 1 if it has none.
int ranks_of(const Node& tree);

}  // namespace lmx::plan
