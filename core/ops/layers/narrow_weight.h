// Products of few rows by a weight that bf16 holds exactly. Such a product takes as long as the weight takes to be
// read, and in bf16 it has half the bytes.
#pragma once

#include "lmx/autograd.h"
#include "lmx/context.h"

namespace lmx::ops {

// y (M, N) = x (M, K) w^T + beta y, all f32; beta is 0 or 1. x is rounded to ctx.compute. Returns false, and computes
// nothing, if M > 4, on a device, on CPUs that multiply bf16 in hardware if ctx.compute is bf16, or if w, rounded to
// ctx.compute, has other numbers than those of bf16. The copy of w in bf16 is kept until w changes.
bool multiply_narrow(Context& ctx, const Tensor& x, const Var& w, Tensor& y, float beta);

}  // namespace lmx::ops
