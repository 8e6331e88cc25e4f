// Ranks that divide the values as well (ZeRO stage 3, Rajbhandari et al. 2020). No run does this: a plan derives it
// from a counted step of stage 2, in which a rank has all values, and in which ranks gather the values of each unit
// once, after the update. With stage 3 a rank keeps its own part, and gathers the values of a unit twice in each pass,
// before forward and before backward use it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "app/memory/counted.h"
#include "app/plan/step.h"
#include "recipe/exchanger.h"

namespace lmx::app::plan {

// The names of the rules that divide values.
std::set<std::string> rules_with_divided_values(const Exchanger& sync);

// Whether the exchange gathers values that `rules` divide.
bool gathers_values(const UnitTime& unit, const std::set<std::string>& rules);

// Replaces the memory of all values of `rules` by that of the rank's own part and of the two successive units that are
// largest together: one that is used, and the next one. Copies of values, such as rounded ones, exist for
// these units only. `values`: bytes of all parameters.
void divide_values(RankCount& count, const std::set<std::string>& rules, int ranks, int64_t values);

// The gather of a unit, and the seconds from the begin of backward until its gradients are complete.
struct Gather {
  UnitWork work;
  double ready_s = 0;
};

// Adds two gathers of each unit to the exchanges of the last pass. `gathers`: in the order of backward. Backward needs
// a unit when the gradients of the unit before it are complete, and forward uses units in the other order, each after
// the same part of its time. A gather may begin when the unit before it is used. `overlap`: see step_time().
void add_gathers(std::vector<UnitWork>& units, const std::vector<Gather>& gathers, const Work& work, bool overlap);

}  // namespace lmx::app::plan
