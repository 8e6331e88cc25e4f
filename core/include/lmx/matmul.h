// Matrix products without gradients: the one place where GEMMs are run (oneDNN on the CPU, cuBLASLt on CUDA).
#pragma once

#include <memory>
#include <string>

#include "lmx/context.h"
#include "lmx/tensor.h"

namespace lmx {

// c (M, N) = op(a) (M, K) * op(b) (K, N) + beta * c, where op transposes when its flag is set. Leading sizes of tensors
// of a higher rank are folded: (B, T, K) counts as (B*T, K). Types: a and b equal, f64, f32, bf16 or f16; c is f64 for
// f64, else f32; sums are float (double for f64). beta is 0 or 1. UserError: inner sizes differ, shape of c, types.
LMX_API void gemm(Context& ctx, const Tensor& a, bool trans_a, const Tensor& b, bool trans_b, Tensor& c,
                  float beta = 0);

// Bytes that gemm() of a (M, K) and b (K, N) of `type` takes on this CPU while it runs, beside its three matrices:
// operands that are widened or transposed first.
LMX_API int64_t gemm_scratch_bytes(DType type, int64_t m, int64_t n, int64_t k, bool trans_a);

// The same product with f32 inputs rounded to `ctx.compute` first (a plain gemm for f32 and f64).
LMX_API void matmul(Context& ctx, const Tensor& a, bool trans_a, const Tensor& b, bool trans_b, Tensor& c,
                    float beta = 0);

// `t` in ctx.compute's type: itself when it already is (f64 stays f64).
LMX_API Tensor to_compute(Context& ctx, const Tensor& t);
// t (M, N) transposed to (N, M), in type `type`.
LMX_API Tensor transposed(Context& ctx, const Tensor& t, DType type);

// The right-hand operand of many products with few rows (a recurrent weight), in the layout that this machine's GEMM
// likes best. Immutable; build it again when the weight has changed.
class LMX_API PackedMatrix {
 public:
  // op(w): (K, N); w is f32 or f64 and is rounded to ctx.compute. `rows`: the number of rows M that multiply() will
  // see; other numbers are possible where layout() is the same for them.
  PackedMatrix(Context& ctx, const Tensor& w, bool trans, int64_t rows);
  // What decides the packed bytes, as a key for keeping them beside w until w changes: one copy serves all numbers of
  // rows for which this is equal.
  static std::string layout(const Context& ctx, const Tensor& w, bool trans, int64_t rows);
  ~PackedMatrix();
  PackedMatrix(PackedMatrix&&) noexcept;
  PackedMatrix(const PackedMatrix&) = delete;
  // y (M, N) = x (M, K) * op(w) + beta * y. x has the compute type, y is f32 (f64 for f64).
  void multiply(Context& ctx, const Tensor& x, Tensor& y, float beta = 0) const;
  int64_t bytes() const;  // of the packed copy, 0 when it refers to w itself

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// True where this CPU multiplies bf16 in hardware (AVX512-BF16 or AMX); elsewhere bf16 GEMMs round their inputs and run
// in f32.
LMX_API bool cpu_has_bf16();
// Whether products of this type run in f32 here: f16 keeps its storage and rounding, as bf16 does without hardware.
LMX_API bool multiplies_in_f32(DType type);
// "avx2", "avx512", "avx512_bf16", "amx_bf16": what GEMMs use here.
LMX_API const char* cpu_isa();

}  // namespace lmx
