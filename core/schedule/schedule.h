// The schedules that are built into lmx, and the rules that scale the learning rate with the batch or the number of
// nodes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lmx/schedule.h"
#include "nn/component.h"

namespace lmx {

namespace schedules {

using Entry = component::Entry<ScheduleFactory>;
// All schedules that are built in.
const std::vector<Entry>& entries();
// The name that a recipe without `schedule:` has.
inline constexpr const char* kUsual = "constant";

}  // namespace schedules

// `lr_rule:` of a recipe: fixed, linear, sqrt (of batch.global / reference_batch), log_nodes (Patwary: lr ln(nodes), at
// least 1 unless strict). The factor is printed at the start of a run and recorded.
struct LrRule {
  std::string name = "fixed";
  int64_t reference_batch = 0;  // linear and sqrt: the batch size for which optimizer.lr was tuned
  int64_t gpus_per_node = 8;    // log_nodes: there are ranks / gpus_per_node nodes, rounded up
  bool strict = false;          // log_nodes: ln(nodes) as in the paper, 0 on one node
  void fields(Fields& f);
  double factor(int64_t global_batch, int64_t ranks) const;
};

}  // namespace lmx
