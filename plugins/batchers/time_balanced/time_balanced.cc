// Sub-batches of equal estimated time (Ott et al. 2018, section 5). The target time is a percentile of the times of
// token_budget's sub-batches. Each sub-batch gets as many sentences as fit into it, according to a table
// time(sentences, source length, target length). The paper looks up the lengths of the longest sentences, to which the
// others are padded. Here nothing is padded, so the mean lengths are used. The table is measured when the run starts,
// and stored with the run. `cost: flops` counts the model's multiply-adds instead, which is the same on every machine.
#include <algorithm>
#include <cmath>

#include "lmx/log.h"
#include "lmx/pair_batches.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

struct TimeBalancedConfig : PairLimit {
  double percentile = 90;
  std::string cost = "measured";
  void fields(Fields& f) {
    PairLimit::fields(f, "target tokens of the token_budget whose times set the target");
    f.field("percentile", percentile, "of those sub-batches' times: what each sub-batch is to take", {0, 100});
    f.choice("cost", cost, {"measured", "flops"},
             "measured (seconds of this machine, kept with the run), flops (multiply-adds of the model)");
  }
};

BatcherEnv::Cost cost_of(const TimeBalancedConfig& c, const BatcherEnv& env) {
  if (c.cost == "measured" && env.cost) return env.cost;
  if (c.cost == "measured")
    log_warn("[time_balanced] no times can be measured here: multiply-adds are balanced instead (cost: flops)");
  if (env.macs) return env.macs;
  return [](int64_t sentences, int64_t source, int64_t target) {
    return static_cast<double>(sentences * (source + target));
  };
}

double target_of(const PairArray& pairs, const PairGroups& groups, const BatcherEnv::Cost& cost, double percentile) {
  std::vector<double> costs;
  for (int64_t g = 0; g < groups.count(); ++g) costs.push_back(cost_of(shape_of(pairs, groups.group(g)), cost));
  const auto at = static_cast<size_t>(std::llround(percentile / 100 * static_cast<double>(costs.size() - 1)));
  std::nth_element(costs.begin(), costs.begin() + static_cast<std::ptrdiff_t>(at), costs.end());
  return costs[at];
}

std::unique_ptr<Batcher> make_time_balanced(const Node& config, const std::string& path, const BatcherEnv& env) {
  const auto c = read_config<TimeBalancedConfig>(config, path);
  int64_t skipped = 0;
  const std::vector<int64_t> order = pairs_by_length(env, c, "time_balanced", path, skipped);
  const BatcherEnv::Cost cost = cost_of(c, env);
  const double target = target_of(env.pairs, cut_by_tokens(env.pairs, order, c.max_tokens), cost, c.percentile);
  const auto cut = [&](std::span<const int64_t> part) {
    return cut_by_cost(env.pairs, part, cost, target, c.max_tokens);
  };
  return std::make_unique<PairBatcher>(
      env, cut_parts(env, order, cut),
      PairBatcher::Options{.max_tokens = c.max_tokens, .measured = c.cost == "measured", .skipped = skipped});
}

}  // namespace

LMX_PLUGIN(batcher, time_balanced, TimeBalancedConfig, make_time_balanced)
