// The common part of optimizers that compute each element of a parameter separately, and whose state are tensors as
// large as the parameter ("slots"): dense and row-sparse updates, saving and loading. An optimizer itself has a config
// and the arithmetic of one element, which is written once for f32, f64, the CPU and CUDA:
//
//   template <class T>
//   struct MomentumUpdate {
//     static constexpr const char* kName = "my_momentum";
//     Elements<T> of;
//     T lr, momentum;
//     T grad = 1;
//     LMX_HD void scale(double factor) { grad = static_cast<T>(factor); }  // of the gradient; called before apply()
//     LMX_HD static void apply(T& p, T g, T& m, const MomentumUpdate& c) {  // one T& for each slot
//       m = c.momentum * m + c.grad * g;
//       p -= c.lr * m;
//     }
//   };
//
// X.cc adds the kernels with `const KernelAdder adder = cpu::updates<MomentumUpdate, ...>();`, X_cuda.cu with
// cuda::updates of lmx/slot_optimizer.cuh.
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmx/kernels.h"
#include "lmx/operand.h"
#include "lmx/optim.h"
#include "lmx/parallel.h"

namespace lmx::optim {

inline constexpr size_t kMaxSlots = 4;

// A state tensor of each parameter: its name in checkpoints, and the initial value of its elements.
struct Slot {
  const char* name;
  double initial;
};

struct Rates {
  double lr;
  int64_t number;  // of the update, from 1
};

// The elements of one parameter that an update changes: rows of `width` elements each. The gradient's rows are in the
// order of `rows`. A kernel of more than two slots has the member `Elements<T, 3> of` (or 4).
template <class T, size_t kSlots = 2>
struct Elements {
  T* param;
  const T* grad;
  T* slot[kSlots];                // state tensors, as long as the parameter
  const int32_t* rows = nullptr;  // (count) rows of the parameter; null: a dense gradient, all of `count` elements
  int64_t count = 0, width = 1;   // dense: width 1
  // The gradient is multiplied by `scale`, and by *factor, in memory of the device, if that is not null.
  double scale = 1;
  const double* factor = nullptr;
  OperandTarget copy = {};  // of the parameter: its rounded copy, which a device writes with it

  // For a kernel of fewer slots: the first ones.
  template <size_t kFewer>
  operator Elements<T, kFewer>() const {
    static_assert(kFewer < kSlots);
    Elements<T, kFewer> some{param, grad, {}, rows, count, width, scale, factor, copy};
    std::copy_n(slot, kFewer, some.slot);
    return some;
  }
};

// The update of one parameter, before an optimizer adds its numbers.
template <class T>
using Change = Elements<T, kMaxSlots>;

// Reads the gradient's factor, which the device has computed, and gives it to the update. Returns false if the update
// changes nothing (GradScale).
template <class Update>
LMX_HD bool read_scale(Update& u) {
  const double scale = u.of.factor ? u.of.scale * *u.of.factor : u.of.scale;
  u.scale(scale);
  return scale == scale;
}

// Updates of many parameters, which a device does with few launches.
template <class Update, class T>
struct UpdateAll {
  static constexpr const char* kName = Update::kName;
  const Update* updates;  // (count), in the memory of the host; the arrays that they name are in that of the device
  int64_t count;
};

namespace detail {

template <class... Parameters>
constexpr size_t slots_of(void (*)(Parameters...)) {
  return sizeof...(Parameters) - 3;
}

[[noreturn]] LMX_API void refuse_slots(const char* kernel, size_t taken, size_t given);

}  // namespace detail

// The slots of a kernel: one for each parameter of its apply() between the gradient and the kernel itself.
template <class Update>
inline constexpr size_t kSlotsOf = detail::slots_of(&Update::apply);

// Runs the kernel of Update, which make(change) returns, for each of them. Throws UserError if a change has fewer slots
// than the kernel takes.
template <class T, class Make>
void run_updates(Context& ctx, std::span<const Change<T>> changes, Make make) {
  using Update = decltype(make(changes[0]));
  static_assert(kSlotsOf<Update> <= sizeof(Update::of.slot) / sizeof(T*),
                "apply() takes more slots than the kernel's member `Elements<T, N> of` holds; N is 2 by default");
  std::vector<Update> all;
  for (const Change<T>& change : changes) {
    size_t given = 0;
    while (given < kMaxSlots && change.slot[given]) ++given;
    if (given < kSlotsOf<Update> && change.count > 0) detail::refuse_slots(Update::kName, kSlotsOf<Update>, given);
    all.push_back(make(change));
  }
  run_kernel(ctx, UpdateAll<Update, T>{all.data(), static_cast<int64_t>(all.size())});
}

// A class that derives from it calls run_updates() in both functions apply(), for the changes that it gets, and writes
// to parameters in no other way: on a device the kernels also write the rounded copies of parameters.
class LMX_API SlotOptimizer : public Optimizer {
 public:
  Grain grain(const std::string&) const final { return Grain::element; }
  bool keeps_state(const std::string&) const final { return !slots_.empty(); }
  void update(Context& ctx, Var& param, double lr, int64_t number, double grad_scale) final;
  void update_all(Context& ctx, std::span<const ParameterUpdate> updates, double lr, int64_t number) final;
  StateDict state() const final;
  void load(Context& ctx, const ParameterStore& params, const StateDict& state) final;

 protected:
  // `name` begins the messages. REQUIRES: at most kMaxSlots slots.
  SlotOptimizer(std::string name, std::vector<Slot> slots);
  virtual void apply(Context& ctx, std::span<const Change<float>> changes, const Rates& rates) const = 0;
  virtual void apply(Context& ctx, std::span<const Change<double>> changes, const Rates& rates) const = 0;

 private:
  using Tensors = std::vector<Tensor>;  // in the order of slots_
  Tensors& tensors_of(Context& ctx, const Var& param);
  template <class T>
  static Change<T> change_of(const Context& ctx, const ParameterUpdate& update, Tensors& slots, const int32_t* rows);

  std::string name_;
  std::vector<Slot> slots_;
  std::map<std::string, Tensors> tensors_;  // by parameter
};

}  // namespace lmx::optim

namespace lmx::cpu {

#if defined(__clang__)  // has no clones of function templates
#define LMX_UPDATE
#else
#define LMX_UPDATE LMX_SIMD
#endif

// Each slot is a separate parameter, because the compiler needs named pointers that do not alias.
template <class T, class Update, class... Slots>
LMX_UPDATE void update_elements(const Update& given, int64_t n, T* __restrict p, const T* __restrict g,
                                Slots* __restrict... slots) {
  const Update c = given;
  for (int64_t i = 0; i < n; ++i) Update::apply(p[i], g[i], slots[i]..., c);
}

#undef LMX_UPDATE

template <class T, template <class> class Update>
void update_one(const Update<T>& given) {
  constexpr int64_t kGrain = 1 << 14;  // elements per thread, at least
  Update<T> u = given;
  if (!optim::read_scale(u)) return;
  const auto& e = u.of;
  // Updates `n` elements from element `at` of the parameter and element `from` of the gradient.
  const auto run = [&]<size_t... s>(std::index_sequence<s...>, int64_t at, int64_t from, int64_t n) {
    update_elements<T, Update<T>>(u, n, e.param + at, e.grad + from, (e.slot[s] + at)...);
  };
  constexpr auto kSlots = std::make_index_sequence<optim::kSlotsOf<Update<T>>>();
  parallel_for(e.count, std::max<int64_t>(1, kGrain / e.width), [&](int64_t begin, int64_t end) {
    if (!e.rows) return run(kSlots, begin, begin, end - begin);
    for (int64_t i = begin; i < end; ++i) run(kSlots, e.rows[i] * e.width, i * e.width, e.width);
  });
}

template <class T, template <class> class Update>
void update(Context&, const optim::UpdateAll<Update<T>, T>& all) {
  for (int64_t k = 0; k < all.count; ++k) update_one<T, Update>(all.updates[k]);
}

// Each Update has the element type as its only parameter.
template <template <class> class... Updates>
KernelAdder updates() {
  return KernelAdder(Device::Kind::cpu, update<float, Updates>..., update<double, Updates>...);
}

}  // namespace lmx::cpu
