// `optimizer:` of a recipe: facts about it before objects are made. lmx/optim.h declares the functions that make them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx {

// A rule of `optimizer:`, and the ratio of its learning rate and that of the first rule.
struct RuleRate {
  std::string rule;
  double factor = 1;
};
// Empty if the recipe has one optimizer. UserError: the first rule has the rate 0, of which no other one is a multiple.
std::vector<RuleRate> rule_rates(const Node& optimizer, const std::string& path);

// Why no rank has all values or the whole state of the optimizer.
enum class ApartRanks : uint8_t { servers, replicas, shards };
// UserError at the place of an optimizer that averages parameters (trait kAverages), or that needs whole parameters if
// servers divide them over ranks.
void check_optimizer_of_ranks(const Node& optimizer, const std::string& path, ApartRanks ranks);
// UserError at the place of an optimizer that averages parameters: the schedule is not `constant`, or `ema`, the decay
// of a moving average, is not 0.
void check_averages(const Node& optimizer, const std::string& path, const Node& schedule, double ema);

}  // namespace lmx
