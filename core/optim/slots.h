// The common part of all optimizers: state tensors of each parameter ("slots"), dense and row-sparse updates, saving
// and loading. An optimizer itself only needs a config, and a kernel for an element (update.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lmx/optim.h"
#include "nn/component.h"
#include "optim/update.h"

namespace lmx::optim {

struct Slot {
  const char* name;
  double initial;
};

struct Rates {
  double lr;
  int64_t step;
  double grad_scale;
};

class SlotOptimizer : public Optimizer {
 public:
  SlotOptimizer(std::string name, std::vector<Slot> slots) : name_(std::move(name)), slots_(std::move(slots)) {}
  void update(Context& ctx, Var& param, double lr, int64_t step, double grad_scale) final;
  StateDict state() const final;
  void load(Context& ctx, const ParameterStore& params, const StateDict& state) final;
  int64_t state_bytes(const ParameterSpec& spec) const final;

 protected:
  // Runs the kernel of the update.
  virtual void apply(Context& ctx, const Elements<float>& of, const Rates& rates) const = 0;
  virtual void apply(Context& ctx, const Elements<double>& of, const Rates& rates) const = 0;

 private:
  using Tensors = std::vector<Tensor>;  // in the order of slots_
  Tensors& tensors_of(Context& ctx, const Var& param);
  template <class T>
  void typed(Context& ctx, Var& param, Tensors& slots, const Rates& rates) const;

  std::string name_;
  std::vector<Slot> slots_;
  std::map<std::string, Tensors> tensors_;  // by parameter
};

using Make = std::unique_ptr<Optimizer> (*)(const Node& config, const std::string& path);
struct Entry : component::Entry<Make> {
  double (*learning_rate)(const Node& config, const std::string& path);
};
// Config: as for component::entry(), with a member `lr`.
template <class Config>
Entry entry(const char* name, Make make) {
  return {component::entry<Config, Make>(name, make),
          [](const Node& config, const std::string& path) { return Config::read(config, path).lr; }};
}
Entry sgd();
Entry adagrad();
Entry adam();
Entry adamw();

}  // namespace lmx::optim
