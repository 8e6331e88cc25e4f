#include "app/plan/find.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "config/messages.h"
#include "lmx/config.h"
#include "lmx/error.h"

namespace lmx::app::plan {
namespace {

constexpr double kMostTokens = 1e18;

Candidate candidate_of(const Row& row, const Goal& goal) {
  Candidate c{.row = row, .price = {}};
  c.steps = std::ceil(goal.tokens / row.step_tokens);
  c.hours = c.steps * row.time.step_s() / 3600;
  c.node_hours = c.hours * static_cast<double>(row.nodes);
  if (row.node_price > 0) c.price = c.node_hours * row.node_price;
  if (goal.hours) c.excess = c.hours / *goal.hours;
  if (goal.price) c.excess = std::max(c.excess, *c.price / *goal.price);
  return c;
}

// By what makes one candidate nearer to a goal that none meets.
std::tuple<bool, double> distance(const Candidate& c) {
  return {c.row.out_of_memory, c.row.out_of_memory ? static_cast<double>(c.row.memory.total()) : c.excess};
}

}  // namespace

Goal parse_goal(const std::string& text) {
  Goal goal;
  const std::vector<std::string> known{"tokens", "hours", "price"};
  for (const std::string& part : config::split(text, ',')) {
    const size_t equals = std::min(part.find('='), part.size());
    const std::string name = part.substr(0, equals);
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UserError(str("[plan] --find takes tokens, hours and price, as in tokens=2e9,hours=24,price=500; got '",
                          name, "'", did_you_mean(name, known)));
    const std::optional<double> value = parse_double(part.substr(std::min(equals + 1, part.size())));
    if (!value || !(*value > 0) || !std::isfinite(*value))
      throw UserError(
          str("[plan] --find: ", name, " is a number above 0, as in tokens=2e9,hours=24,price=500; got '", part, "'"));
    if (name == "tokens") goal.tokens = *value;
    if (name == "hours") goal.hours = value;
    if (name == "price") goal.price = value;
  }
  if (!(goal.tokens >= 1 && goal.tokens <= kMostTokens))
    throw UserError(str("[plan] --find needs tokens=N, from 1 to ", kMostTokens,
                        " target tokens, as in tokens=2e9,hours=24; got '", text, "'"));
  return goal;
}

Found find(const Plan& plan, const Goal& goal) {
  Found found{.goal = goal, .met = {}, .nearest = {}};
  for (const Row& row : plan.rows) {
    if (goal.price && !(row.node_price > 0))
      throw UserError(str("[plan] --find price=", *goal.price, ": the price of machine ", plan.machine_name,
                          " is unknown; machine.price.node_hour=N states that of a node and an hour"));
    Candidate c = candidate_of(row, goal);
    const bool slow = goal.hours && c.hours > *goal.hours, expensive = goal.price && *c.price > *goal.price;
    if (!row.out_of_memory && !slow && !expensive) {
      found.met.push_back(std::move(c));
      continue;
    }
    ++(row.out_of_memory ? found.out_of_memory : slow ? found.too_slow : found.too_expensive);
    if (!found.nearest || distance(c) < distance(*found.nearest)) found.nearest = std::move(c);
  }
  std::stable_sort(found.met.begin(), found.met.end(), [](const Candidate& a, const Candidate& b) {
    return std::pair(a.cost(), a.hours) < std::pair(b.cost(), b.hours);
  });
  if (!found.met.empty()) found.nearest.reset();
  return found;
}

}  // namespace lmx::app::plan
