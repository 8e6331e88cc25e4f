#include "optim/optimizers.h"

namespace lmx {

const std::vector<optim::Entry>& optim::entries() {
  static const std::vector<Entry> table{sgd(), adagrad(), adam(), adamw()};
  return table;
}
component::Described component::optimizers() {
  return describe(optim::entries());
}

}  // namespace lmx
