// The parts of a linear layer that other ops share, see linear.cc.
#pragma once

#include "ops/common.h"

namespace lmx::ops {

// The op and the names of its operands in errors.
struct LinearNames {
  const char *op, *x, *w, *b;
};
// UserError `[linear] x (2, 3) and w (4, 5): the last sizes must be equal`, also for ranks, and for a bias of another
// size or type.
void check_linear(const LinearNames& name, const Shape& x, const Tensor& w, const Var& b);

// UserError: x has neither the type of the weight nor that of products, in which other ops store values that only a
// linear layer reads.
void check_input(const Context& ctx, const LinearNames& name, const Var& x, const Tensor& w);

// x w^T + b in f32, or in f64 for f64 operands: x (..., K) and w (N, K) of the compute type -> (..., N). On the CPU, in
// f64, and if the device has no product with a bias of these sizes, the product is added to the bias, which is first
// written to every row.
Tensor linear_value(Context& ctx, const Tensor& x, const Tensor& w, const Var& b);
// x w^T in the type of its operands: x (..., K) and w (N, K) -> (..., N).
Tensor rounded_product(Context& ctx, const Tensor& x, const Tensor& w);

// linear() without the bias in its value, which is that of rounded_product(). Backward computes the gradient of b as
// well, whose value the op that reads the result has to add. REQUIRES: one op reads the result.
Var rounded_linear(Context& ctx, const Var& x, const Var& w, const Var& b);

// Whether the product of a branch of `columns` columns, see Branch, has the type of products.
bool rounds_branches(Device::Kind device, DType compute, int64_t columns);
// The values of a branch, see Branch, of the same operands as linear_value().
struct BranchValue {
  Tensor product;
  Var bias;  // b, if it is still to be added
};
BranchValue branch_value(Context& ctx, const Tensor& x, const Tensor& w, const Var& b);

}  // namespace lmx::ops
