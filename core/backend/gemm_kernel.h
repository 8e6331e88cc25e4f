// The arguments of a GEMM kernel: checked sizes and plain pointers.
#pragma once

#include "lmx/context.h"
#include "lmx/kernels.h"

namespace lmx {

// c (m, n) = op(a) (m, k) * op(b) (k, n) + beta * c. a and b have the kernel's type; if multiplies_in_f32(that type),
// one of them may be f32. c is f64 for f64, else f32.
struct GemmCall {
  const void* a;
  DType a_type;
  bool trans_a;
  const void* b;
  DType b_type;
  bool trans_b;
  void* c;
  int64_t m, n, k;
  float beta;  // 0 or 1
};
using GemmKernel = void (*)(Context&, const GemmCall&);

void add_cpu_gemm();  // adds "gemm" for f64, f32, bf16 and f16

}  // namespace lmx
