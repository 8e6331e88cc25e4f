#include "nn/component.h"
#include "optim/slots.h"

namespace lmx {
namespace {

using Make = std::unique_ptr<Optimizer> (*)(const Node&, const std::string&);

const std::vector<component::Entry<Make>>& entries() {
  static const std::vector<component::Entry<Make>> table{
      {"sgd", optim::make_sgd, optim::full_sgd, optim::fields_sgd},
      {"adagrad", optim::make_adagrad, optim::full_adagrad, optim::fields_adagrad},
      {"adam", optim::make_adam, optim::full_adam, optim::fields_adam},
      {"adamw", optim::make_adamw, optim::full_adamw, optim::fields_adamw}};
  return table;
}

const component::Entry<Make>& entry(const Node& config, const std::string& path) {
  return component::find(entries(), config, path, nullptr);
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Node& config, const std::string& path) {
  return entry(config, path).make(config, path);
}
component::Described component::optimizers() {
  return describe(entries());
}
Node full_optimizer_config(const Node& config, const std::string& path) {
  return entry(config, path).full(config, path);
}

}  // namespace lmx
