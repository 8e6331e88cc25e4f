// Products of few rows by a weight that bf16 holds exactly. Such a product takes as long as the weight takes to be
// read, and in bf16 it has half the bytes.
#pragma once

#include "lmx/autograd.h"
#include "lmx/context.h"

namespace lmx::ops {

// y (M, N) = x (M, K) w^T + beta y, all f32; beta is 0 or 1. x and w are rounded to ctx.compute. Returns false, and
// computes nothing, if M > 4, on a device, if ctx.compute is f16, or bf16 on a CPU that multiplies it in hardware, or
// f32 and w has other numbers than those of bf16. The copy of w in bf16 is kept until w changes.
bool multiply_narrow(Context& ctx, const Tensor& x, const Var& w, Tensor& y, float beta);

}  // namespace lmx::ops
