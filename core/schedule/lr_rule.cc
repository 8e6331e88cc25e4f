#include <algorithm>
#include <cmath>

#include "lmx/error.h"
#include "schedule/schedule.h"

namespace lmx {

void LrRule::fields(Fields& f) {
  f.choice("name", name, {"fixed", "linear", "sqrt", "log_nodes"}, "how optimizer.lr is scaled");
  f.field("reference_batch", reference_batch, "linear and sqrt: the batch.global for which optimizer.lr was found",
          kNonNegative);
  f.field("gpus_per_node", gpus_per_node, "log_nodes: ranks of a node", kPositive);
  f.field("strict", strict, "log_nodes: ln(nodes) as printed, which is 0 on one node, instead of at least 1");
}

double LrRule::factor(int64_t global_batch, int64_t ranks) const {
  if (name == "fixed") return 1;
  if (name == "linear" || name == "sqrt") {
    if (reference_batch <= 0) {
      throw UserError(
          str("[lr_rule] ", name, " needs lr_rule.reference_batch, the batch for which optimizer.lr was found"));
    }
    const double times = static_cast<double>(global_batch) / static_cast<double>(reference_batch);
    return name == "linear" ? times : std::sqrt(times);
  }
  if (name != "log_nodes") {
    const std::vector<std::string> known{"fixed", "linear", "sqrt", "log_nodes"};
    throw UserError(str("[lr_rule] unknown rule '", name, "'", did_you_mean(name, known)));
  }
  const int64_t nodes = std::max<int64_t>(1, (ranks + gpus_per_node - 1) / gpus_per_node);
  const double factor = std::log(static_cast<double>(nodes));
  return strict ? factor : std::max(1.0, factor);
}

}  // namespace lmx
