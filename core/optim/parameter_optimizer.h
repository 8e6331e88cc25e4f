// The common part of optimizers that need a parameter as a whole: norms of it, or products of matrices. Such an
// optimizer computes one parameter after the other, from the kernels of update.h and ops, and the host does not wait
// for a device.
//
// A row-sparse gradient: the update is that of the matrix which consists of its rows.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmx/optim.h"
#include "lmx/slot_optimizer.h"
#include "optim/states.h"

namespace lmx::optim {

class ParameterOptimizer : public Optimizer {
 public:
  void update(Context& ctx, Var& param, double lr, int64_t number, double grad_scale) final;
  void update_all(Context& ctx, std::span<const ParameterUpdate> updates, double lr, int64_t number) final;
  StateDict state() const final;
  void load(Context& ctx, const ParameterStore& params, const StateDict& state) final;

 protected:
  // The update of one parameter, or of some rows of it, with a dense gradient.
  struct Step {
    const std::string& name;  // of the parameter
    Tensor value, grad;
    Tensors& slots;  // in the order of states()
    GradScale scale;
  };

  explicit ParameterOptimizer(std::string name) : name_(std::move(name)) {}
  virtual States states(const Tensor& value) const = 0;
  // Sets the state of a parameter before its first update, all of which is 0.
  virtual void start(Tensors& slots, const Tensor& value) const;
  // Every kernel that writes to value or slots gets step.scale, so that it changes nothing if the factor is NaN.
  virtual void step(Context& ctx, Step& step, const Rates& rates) = 0;

  std::map<std::string, Tensors>& slots() { return slots_; }  // by parameter

 private:
  Tensors& slots_of(Context& ctx, const Var& param);
  void rows_step(Context& ctx, Var& param, Tensors& slots, const GradScale& scale, const Rates& rates);

  std::string name_;
  std::map<std::string, Tensors> slots_;
  std::map<std::string, States> states_;  // of the parameters in slots_
};

// Runs the kernel of an update for all elements of `value`. make(change), with a Change of the element type, returns
// the update.
template <class Make>
void run_elements(Context& ctx, Tensor value, const Tensor& grad, const std::vector<Tensor>& slots,
                  const GradScale& scale, Make make) {
  const auto typed = [&]<class T>(T) {
    Change<T> of{value.data<T>(), grad.data<T>(), {}, nullptr, value.numel(), 1, scale.number, nullptr};
    if (scale.factor) of.factor = scale.factor.data<double>();
    for (size_t s = 0; s < slots.size(); ++s) {
      Tensor slot = slots[s];
      of.slot[s] = slot.data<T>();
    }
    run_updates(ctx, std::span<const Change<T>>(&of, 1), make);
  };
  value.dtype() == DType::f64 ? typed(double{}) : typed(float{});
}

// The sums of the squares of tensors: (n) f64, in the memory of the device.
Tensor squares_of(Context& ctx, std::span<const Tensor> tensors);

// A matrix that has the parameter's rows.
inline bool is_matrix(const Tensor& value) {
  return value.shape().rank() > 1;
}

}  // namespace lmx::optim
