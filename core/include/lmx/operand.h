// Operands of matrix products that a kernel writes beside its result. A product reads its inputs in ctx.compute's type.
// On a device the kernel that computes an input also writes it in that type, so that no second kernel has to read and
// round it. The bits are those of to_compute() and as_operand().
#pragma once

#include <cstdint>

#include "lmx/dtype.h"
#include "lmx/kernels.h"
#include "lmx/matmul.h"

namespace lmx {

// Where a kernel writes an operand: a member of its arguments. `to` is null if it writes none, as always on the CPU.
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

// Whether kernels of ctx.device write operands. If they do not, to_compute() and as_operand() round.
inline bool kernels_write_operands(const Context& ctx) {
  return ctx.device.kind == Device::Kind::cuda;
}
// The target for a kernel that writes `operand`; none if `operand` is undefined or kernels write no operands.
inline OperandTarget operand_target(const Context& ctx, const Tensor& operand) {
  if (!operand.defined() || !kernels_write_operands(ctx)) return {};
  return {const_cast<void*>(operand.raw()), operand.dtype()};
}
// After a kernel that was given operand_target(ctx, operand): rounds `value` into `operand` unless the kernel did.
inline void complete_operand(Context& ctx, const Tensor& value, const Tensor& operand) {
  if (!kernels_write_operands(ctx)) to_compute(ctx, value, operand);
}

// The operands of a loop over time: those of a tensor (n*B, C) whose row block t a pointwise kernel computes in step t.
// On a device the kernel writes them all, and they serve the products after the loop as well. On the CPU each step
// rounds its own rows into the same memory.
class StepOperands {
 public:
  StepOperands(Context& ctx, const Tensor& values, int64_t batch)
      : values_(values), batch_(batch), whole_(kernels_write_operands(ctx)) {
    operands_ = operand_memory(ctx, whole_ ? values : values.slice(0, batch));
  }
  OperandTarget target(const Context& loop, int64_t step) const {
    return whole_ && operands_.defined() ? operand_target(loop, rows(operands_, step)) : OperandTarget();
  }
  // After the kernel of the step: the operand (B, C).
  Tensor of(Context& loop, int64_t step) const {
    if (whole_ && operands_.defined()) return rows(operands_, step);
    return as_operand(loop, rows(values_, step), operands_);
  }
  // After the loop: the operand (n*B, C).
  Tensor all(Context& ctx) const { return whole_ && operands_.defined() ? operands_ : as_operand(ctx, values_); }

 private:
  Tensor rows(const Tensor& t, int64_t step) const { return t.slice(step * batch_, (step + 1) * batch_); }

  Tensor values_, operands_;
  int64_t batch_;
  bool whole_;
};

}  // namespace lmx
