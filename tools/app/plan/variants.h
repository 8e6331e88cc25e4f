// The variants of a recipe that a request spans, each with its machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/plan/plan.h"

namespace lmx::app::plan {

struct Variant {
  std::string label;  // its values that differ between variants
  Node tree;          // the composed recipe
  Machine machine;    // overrides may change it
  Algorithm algorithm = Algorithm::automatic;
  bool keeps_batch = false;  // an override sets batch.global
};
// In the order of the grid. A key below another one with several values, such as sync.all.every, applies to the
// variants that have it; a key that no variant has is an error. `swept`: the recipe has axes of a sweep, which are not
// part of a plan. UserError: a wrong override, a machine that does not exist, a number of ranks that differs between
// variants although the request states the numbers.
std::vector<Variant> variants_of(const Request& request, bool& swept);

// The composed recipe of each variant, if no machine is chosen.
std::vector<Node> variant_trees(const std::string& recipe, const ComposeOptions& options);

// Calls make(0), make(1), ..., once for each label of a variant. An error begins with the label of its variant, unless
// all variants have it.
void for_variants(const std::vector<std::string>& labels, const std::function<void(size_t)>& make);

// The number of ranks in `comm:` of a composed recipe; 1 if it has none.
int ranks_of(const Node& tree);

}  // namespace lmx::app::plan
