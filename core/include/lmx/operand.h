// Operands of matrix products that a kernel writes beside its result. A product reads its inputs in ctx.compute's type.
// On a device, and in residual connections on the CPU as well, the kernel that computes an input also writes it in that
// type, so that no second kernel has to read and round it. The bits are those of to_compute() and as_operand().
#pragma once

#include <cstdint>
#include <type_traits>

#include "lmx/dtype.h"
#include "lmx/kernels.h"
#include "lmx/matmul.h"

namespace lmx {

// The type in which kernels compute with stored values of type S.
template <class S>
using Computed = std::conditional_t<std::is_same_v<S, double>, double, float>;

// N neighbouring elements of an array, which a pointwise kernel computes together (lmx/pointwise.h).
template <class T, int N>
struct Some {
  T v[N];
  LMX_HD T& operator[](int e) { return v[e]; }
  LMX_HD const T& operator[](int e) const { return v[e]; }
};

// Where a kernel writes an operand: a member of its arguments. `to` is null if it writes none.
struct OperandTarget {
  void* to = nullptr;
  DType type = DType::f32;

  template <class T>
  LMX_HD void store(int64_t i, T value) const {
    switch (type) {
      case DType::f64:
        static_cast<double*>(to)[i] = static_cast<double>(value);
        return;
      case DType::bf16:
        static_cast<bfloat16*>(to)[i] = bfloat16(static_cast<float>(value));
        return;
      case DType::f16:
        static_cast<float16*>(to)[i] = float16(static_cast<float>(value));
        return;
      default:
        static_cast<float*>(to)[i] = static_cast<float>(value);
    }
  }
};

// The target for a kernel that writes `operand` on every device; none if `operand` is undefined.
inline OperandTarget target_in(const Tensor& operand) {
  if (!operand.defined()) return {};
  return {const_cast<void*>(operand.raw()), operand.dtype()};
}

// Whether all kernels of ctx.device write operands. If they do not, to_compute() and as_operand() round.
inline bool kernels_write_operands(const Context& ctx) {
  return ctx.device.kind == Device::Kind::cuda;
}
// The target for a kernel that writes `operand`; none if `operand` is undefined or kernels write no operands.
inline OperandTarget operand_target(const Context& ctx, const Tensor& operand) {
  return kernels_write_operands(ctx) ? target_in(operand) : OperandTarget();
}
// After a kernel that was given operand_target(ctx, operand): rounds `value` into `operand` unless the kernel did.
inline void complete_operand(Context& ctx, const Tensor& value, const Tensor& operand) {
  if (!kernels_write_operands(ctx)) to_compute(ctx, value, operand);
}

// Whether ops on `device` store values that only products and their own kernels read in `compute`, the type of
// products: on a GPU, where half of the bytes are then moved, and the values are operands without a copy.
inline bool stores_operands(Device::Kind device, DType compute) {
  return device == Device::Kind::cuda && size_of(compute) == 2;
}
// The type in which a layer of values of type T keeps the activations of a loop over time, which backward replaces by
// their gradients: the type of products, if operands are stored, else T.
template <class T>
DType kept_type(const Context& ctx) {
  return dtype_of<T> == DType::f32 && stores_operands(ctx.device.kind, ctx.compute) ? ctx.compute : dtype_of<T>;
}
// Calls f(S{}) with that type S.
template <class T, class F>
void with_kept(DType kept, const F& f) {
  if constexpr (std::is_same_v<T, float>) {
    if (kept == DType::bf16) return f(bfloat16());
    if (kept == DType::f16) return f(float16());
  }
  f(T());
}

// a + b. A null b adds nothing.
template <class Lanes, class A, class B>
LMX_HD auto load_sum(Lanes& lanes, const A* a, const B* b) {
  auto sum = lanes.load(a);
  if (!b) return sum;
  const auto more = lanes.load(b);
  for (int e = 0; e < Lanes::kCount; ++e) sum[e] += more[e];
  return sum;
}

// The operands of a loop over time: those of a tensor (n*B, C) whose row block t a pointwise kernel computes in step t.
// A tensor of the type of products is its own operand; of any other, each step rounds its rows into the same memory.
class StepOperands {
 public:
  StepOperands(Context& ctx, const Tensor& values, int64_t batch)
      : values_(values), operand_(operand_memory(ctx, values.slice(0, batch))), batch_(batch) {}
  // After the kernel of the step: the operand (B, C).
  Tensor of(Context& loop, int64_t step) const {
    return as_operand(loop, values_.slice(step * batch_, (step + 1) * batch_), operand_);
  }
  // After the loop: the operand (n*B, C).
  Tensor all(Context& ctx) const { return as_operand(ctx, values_); }

 private:
  Tensor values_, operand_;
  int64_t batch_;
};

}  // namespace lmx
