// Attention of long sequences by cuDNN (backend/cudnn.h), for attention.cc. lmx's own kernels have small tiles, which
// suit short sequences.
#pragma once

#include <memory>

#include "backend/sdpa.h"
#include "lmx/autograd.h"
#include "lmx/ops.h"
#include "ops/attention/attention.h"
#include "ops/common.h"

namespace lmx::ops {

constexpr int64_t kFewKeys = 512;  // for which lmx's own kernels are used

// The columns of a variable from `column` on: queries, keys or values.
struct Operand {
  Var var;
  int64_t column = 0;
  bool projected = false;  // the variable is a rounded projection
  Var bias = {};           // of the projection, which the kernels add; may be undefined
  DType value_type() const { return projected ? DType::f32 : var.value().dtype(); }
  int64_t stride() const { return var.value().dim(1); }
  // In type S: that of the values, or of 16 bits.
  template <class S>
  HeadColumns<const S> columns(Context& ctx) const {
    const Tensor& t = sizeof(S) == 2 ? compute_copy(ctx, var) : var.value();
    return {t.data<S>() + column, stride()};
  }
  const float* bias_columns() const { return bias.defined() ? bias.value().data<float>() + column : nullptr; }
};

struct Operands {
  Operand q, k, v;
};

// Whether two operands are the same columns, so that their gradients are added up.
inline bool same_columns(const Operand& a, const Operand& b) {
  return a.var.same(b.var) && a.column == b.column;
}

// One attention that cuDNN computes.
class LongAttention {
 public:
  // Null if lmx's own kernels compute this attention. The choice depends on its sizes and on the device alone, so it is
  // the same in training and evaluation, and in every run: compute type bf16 or fp16, more than 512 keys, no bias, no
  // dropout, heads of a multiple of 8 and at most 128 elements. UserError: cudnn_computes().
  static std::shared_ptr<const LongAttention> of(Context& ctx, const Operands& x, const AttentionPlan& plan,
                                                 const Segments& queries, const Segments& keys);

  // y (N, heads size) is `out`'s value, lse (N, heads) f32. The operands q, k and v are those that exist, or are made
  // and kept until the gradient is computed, like that of y.
  void forward(Context& ctx, const Operands& x, const Var& out, const Tensor& lse) const;
  // Adds to the gradients of the operands.
  void backward(Context& ctx, const Operands& x, const Var& out, const Tensor& lse) const;

 private:
  LongAttention() = default;
  template <class T>
  SdpaInput<T> input(Context& ctx, const Operands& x) const;

  SdpaShape shape_{};
  Uploaded<int64_t> q_offsets_, k_offsets_, v_offsets_, y_offsets_, lse_offsets_;
  Uploaded<int32_t> query_counts_, key_counts_;
};

}  // namespace lmx::ops
