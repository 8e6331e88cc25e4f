#include "app/plan/divided.h"

#include <algorithm>

#include "lmx/shard_strategy.h"

namespace lmx::app::plan {

std::set<std::string> rules_with_divided_values(const Exchanger& sync) {
  std::set<std::string> rules;
  for (const ShardStrategy* shard : sync.shards())
    if (shard->stage() == 3) rules.insert(shard->env().group);
  return rules;
}

bool gathers_values(const UnitTime& unit, const std::set<std::string>& rules) {
  return unit.after_update && rules.contains(unit.rule);
}

void divide_values(RankCount& count, const std::set<std::string>& rules, int ranks, int64_t values) {
  int64_t all = 0, own = 0, in_use = 0, before = 0;
  for (const UnitTime& unit : count.units) {
    if (!gathers_values(unit, rules)) continue;
    const int64_t part = unit.bytes.sent / (ranks - 1);  // a rank sends its part to each other rank
    const int64_t whole = part + unit.bytes.received;
    all += whole;
    own += part;
    in_use = std::max(in_use, before + whole);
    before = whole;
  }
  constexpr auto kParameters = static_cast<size_t>(MemClass::parameters);
  for (MemoryStats* stats : {&count.memory.training, &count.memory.evaluation}) {
    const auto copies = static_cast<double>(std::max<int64_t>(0, stats->peak[kParameters] - values));
    const double with_copies = 1 + copies / static_cast<double>(values);
    const auto saved = static_cast<int64_t>(with_copies * static_cast<double>(all - in_use)) - own;
    stats->peak[kParameters] -= std::max<int64_t>(0, saved);
    stats->total_peak -= std::max<int64_t>(0, saved);
  }
}

void add_gathers(std::vector<UnitWork>& units, const std::vector<Gather>& gathers, const Work& work, bool overlap) {
  std::vector<UnitWork> all;
  double used = -work.forward_s;  // when the unit before is used, in seconds after the begin of backward
  const auto add = [&](UnitWork gather, double needed) {
    gather.ready_s = used;
    gather.needed_s = used = std::max(used, needed);
    all.push_back(gather);
  };
  for (auto g = gathers.rbegin(); g != gathers.rend(); ++g)
    add(g->work, -work.forward_s * g->ready_s / std::max(work.backward_s, 1e-12));
  double begun = 0;
  for (const Gather& g : gathers) {
    add(g.work, begun);
    begun = g.ready_s;
  }
  units.insert(units.begin(), all.begin(), all.end());
  if (overlap)
    std::stable_sort(units.begin(), units.end(),
                     [](const UnitWork& a, const UnitWork& b) { return a.ready_s < b.ready_s; });
}

}  // namespace lmx::app::plan
