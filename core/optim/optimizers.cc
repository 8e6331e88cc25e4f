#include "optim/optimizers.h"

#include "lmx/error.h"

namespace lmx {

void optim::check_betas(const std::vector<double>& betas, const Node& config, const std::string& path) {
  if (betas.size() == 2 && betas[0] < 1 && betas[1] < 1) return;
  throw UserError(str(place_of_key(config, path, "betas"), "expected two numbers in [0, 1) such as [0.9, 0.999]"));
}

const std::vector<optim::Entry>& optim::entries() {
  static const std::vector<Entry> table{sgd(),  adagrad(), adam(), adamw(),     muon(),
                                        lion(), lamb(),    lars(), adafactor(), schedule_free()};
  return table;
}
component::Described component::optimizers() {
  return describe(optim::entries());
}

}  // namespace lmx
