// What a GEMM kernel gets: checked sizes and plain pointers.
#pragma once

#include "lmx/context.h"
#include "lmx/kernels.h"

namespace lmx {

// c (m, n) = op(a) (m, k) * op(b) (k, n) + beta * c; a and b of `type`, c f64 for f64, else f32.
struct GemmCall {
  const void* a;
  bool trans_a;
  const void* b;
  bool trans_b;
  void* c;
  int64_t m, n, k;
  float beta;  // 0 or 1
};
using GemmKernel = void (*)(Context&, const GemmCall&);

void add_cpu_gemm();  // adds "gemm" for f64, f32, bf16 and f16

}  // namespace lmx
