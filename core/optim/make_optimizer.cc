#include "nn/component.h"
#include "optim/slots.h"

namespace lmx {
namespace {

using Make = std::unique_ptr<Optimizer> (*)(const Node&, const std::string&);

const component::Entry<Make>& entry(const Node& config, const std::string& path) {
  static const std::vector<component::Entry<Make>> entries{{"sgd", optim::make_sgd, optim::full_sgd},
                                                           {"adagrad", optim::make_adagrad, optim::full_adagrad},
                                                           {"adam", optim::make_adam, optim::full_adam},
                                                           {"adamw", optim::make_adamw, optim::full_adamw}};
  return component::find(entries, config, path, nullptr);
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Node& config, const std::string& path) {
  return entry(config, path).make(config, path);
}
Node full_optimizer_config(const Node& config, const std::string& path) {
  return entry(config, path).full(config, path);
}

}  // namespace lmx
