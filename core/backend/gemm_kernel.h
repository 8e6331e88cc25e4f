// The arguments of a matrix product: checked sizes and plain pointers.
#pragma once

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
template <class T>
struct Gemm : GemmCall {
  static constexpr const char* kName = "gemm";
};

}  // namespace lmx
