// `lmx plan --find`: which variants, on which numbers of ranks, train a number of tokens within a time and a price.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/plan/plan.h"

namespace lmx::app::plan {

struct Goal {
  double tokens = 0;                   // target tokens of all ranks
  std::optional<double> hours, price;  // at most
};
// "tokens=2e9,hours=24,price=500"; hours and price may be absent. UserError: another form, a number that is not
// positive, or more than 1e18 tokens.
Goal parse_goal(const std::string& text);

// A row of a plan, and what its training to the goal's tokens takes.
struct Candidate {
  Row row;
  double steps = 0;  // a whole number
  double hours = 0, node_hours = 0;
  std::optional<double> price;  // node_hours times the price of a node, if it is known
  double excess = 0;            // the largest of hours and price, each divided by its limit; 0 without a limit
  double cost() const { return price.value_or(node_hours); }
};

struct Found {
  Goal goal;
  std::vector<Candidate> met;                                 // by cost, then by hours
  size_t out_of_memory = 0, too_slow = 0, too_expensive = 0;  // each of the others once, in this order of the reasons
  // If none is met: of those that fit into memory the one of the least excess, otherwise the one of the least memory.
  std::optional<Candidate> nearest;
};
// Looks at every row. UserError: a limit of the price, and a machine without a price.
Found find(const Plan& plan, const Goal& goal);

}  // namespace lmx::app::plan
