// The arguments of a matrix product: checked sizes and plain pointers.
#pragma once

#include "lmx/kernels.h"

namespace lmx {

// c (m, n) = op(a) (m, k) * op(b) (k, n) + beta * c + bias. a and b have the kernel's type; if multiplies_in_f32(that
// type), one of them may be f32. c is f64 for f64, else f32. It may have the kernel's type if there is no bias, and on
// a CPU if beta is 0.
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
  DType c_type;
  F32Products products;        // of f32 on a CUDA device: exact or tf32
  const void* bias = nullptr;  // (n) of c's type, added to every row; null except after gemm_adds_bias()
  bool* bias_added = nullptr;  // with a bias: set to whether the device has such a product; if not, c is unchanged
};
template <class T>
struct Gemm : GemmCall {
  static constexpr const char* kName = "gemm";
  static constexpr bool kAllocatesOnCpu = true;
};

// Whether products of matrices of this type can add a bias. oneDNN and cuBLASLt do so while they write the result.
inline bool gemm_adds_bias(DType type) {
  return type != DType::f64;
}
// y (..., n) = x (..., k) w^T + bias (n), with w (n, k). Returns false, and leaves y unchanged, if the device has no
// algorithm for a product of these sizes with a bias. REQUIRES: gemm_adds_bias(x.dtype()), and k > 0.
bool gemm_with_bias(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias, Tensor& y);

}  // namespace lmx
