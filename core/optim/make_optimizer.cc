#include "optim/learning_rate.h"
#include "optim/slots.h"

namespace lmx {
namespace {

const std::vector<optim::Entry>& entries() {
  static const std::vector<optim::Entry> table{optim::sgd(), optim::adagrad(), optim::adam(), optim::adamw()};
  return table;
}

const optim::Entry& entry(const Node& config, const std::string& path) {
  return component::find(entries(), config, path, nullptr);
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Node& config, const std::string& path) {
  return entry(config, path).make(config, path);
}
component::Described component::optimizers() {
  return describe(entries());
}
double learning_rate(const Node& config, const std::string& path) {
  return entry(config, path).learning_rate(config, path);
}
Node full_optimizer_config(const Node& config, const std::string& path) {
  return entry(config, path).full(config, path);
}

}  // namespace lmx
