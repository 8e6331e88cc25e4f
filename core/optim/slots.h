// The common part of all optimizers: state tensors of each parameter ("slots"), dense and row-sparse updates, saving
// and loading. An optimizer itself only needs a config, and a kernel for an element (update.h).
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "lmx/optim.h"
#include "nn/component.h"
#include "optim/update.h"
#include "optim/update_all.h"

namespace lmx::optim {

struct Slot {
  const char* name;
  double initial;
};

struct Rates {
  double lr;
  int64_t step;
};

// The update of one parameter, before an optimizer adds its numbers.
template <class T>
struct Change {
  Elements<T> of;
  double grad_scale;
};

// Runs the kernel of Update, which make(change) returns, for each of them.
template <class T, class Make>
void run_updates(Context& ctx, std::span<const Change<T>> changes, Make make) {
  if (ctx.device.kind == Device::Kind::cpu) {
    for (const Change<T>& change : changes) run_kernel(ctx, make(change));
    return;
  }
  std::vector<decltype(make(changes[0]))> all;
  for (const Change<T>& change : changes) all.push_back(make(change));
  run_kernel(ctx, UpdateAll<decltype(make(changes[0])), T>{all.data(), static_cast<int64_t>(all.size())});
}

class SlotOptimizer : public Optimizer {
 public:
  SlotOptimizer(std::string name, std::vector<Slot> slots) : name_(std::move(name)), slots_(std::move(slots)) {}
  void update(Context& ctx, Var& param, double lr, int64_t step, double grad_scale) final;
  void update_all(Context& ctx, std::span<const ParameterUpdate> updates, const Rates& rates);
  StateDict state() const final;
  void load(Context& ctx, const ParameterStore& params, const StateDict& state) final;
  int64_t state_bytes(const ParameterSpec& spec) const final;

 protected:
  // run_updates() with the optimizer's kernel.
  virtual void apply(Context& ctx, std::span<const Change<float>> changes, const Rates& rates) const = 0;
  virtual void apply(Context& ctx, std::span<const Change<double>> changes, const Rates& rates) const = 0;

 private:
  using Tensors = std::vector<Tensor>;  // in the order of slots_
  Tensors& tensors_of(Context& ctx, const Var& param);
  template <class T>
  static Change<T> change_of(const ParameterUpdate& update, Tensors& slots, const int32_t* rows);

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
