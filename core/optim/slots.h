// The common part of all optimizers: state tensors of each parameter ("slots"), dense and row-sparse updates, saving
// and loading. An optimizer itself only needs a config and a loop over a run of elements.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "lmx/optim.h"

namespace lmx::optim {

inline constexpr size_t kMaxSlots = 2;

struct Slot {
  const char* name;
  double initial;
};

// Contiguous elements of one parameter: a part of a dense parameter, or a row.
template <class T>
struct Run {
  T* param;
  const T* grad;
  std::array<T*, kMaxSlots> slot;
  int64_t n;
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
  // Called by several threads at once, on runs that do not overlap.
  virtual void apply(const Run<float>& run, const Rates& rates) const = 0;
  virtual void apply(const Run<double>& run, const Rates& rates) const = 0;

 private:
  using Tensors = std::vector<Tensor>;  // in the order of slots_
  Tensors& tensors_of(Context& ctx, const Var& param);
  template <class T>
  void update_dense(Var& param, Tensors& slots, const Rates& rates) const;
  template <class T>
  void update_rows(Var& param, Tensors& slots, const Rates& rates) const;

  std::string name_;
  std::vector<Slot> slots_;
  std::map<std::string, Tensors> tensors_;  // by parameter
};

std::unique_ptr<Optimizer> make_sgd(const Node& config, const std::string& path);
std::unique_ptr<Optimizer> make_adagrad(const Node& config, const std::string& path);
std::unique_ptr<Optimizer> make_adam(const Node& config, const std::string& path);
std::unique_ptr<Optimizer> make_adamw(const Node& config, const std::string& path);
Node full_sgd(const Node& config, const std::string& path);
std::vector<FieldInfo> fields_sgd();
Node full_adagrad(const Node& config, const std::string& path);
std::vector<FieldInfo> fields_adagrad();
Node full_adam(const Node& config, const std::string& path);
std::vector<FieldInfo> fields_adam();
Node full_adamw(const Node& config, const std::string& path);
std::vector<FieldInfo> fields_adamw();

}  // namespace lmx::optim
