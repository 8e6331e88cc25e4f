// Matrix products without gradients. All GEMMs are run here (oneDNN on the CPU, cuBLASLt on CUDA).
#pragma once

#include <memory>
#include <string>

#include "lmx/context.h"
#include "lmx/tensor.h"

namespace lmx {

// c (M, N) = op(a) (M, K) * op(b) (K, N) + beta * c; op transposes if its flag is set. Leading sizes of tensors of a
// higher rank are folded: (B, T, K) is treated as (B*T, K). Types: a and b have the same type (f64, f32, bf16 or f16),
// or one is f32 and the other a type with multiplies_in_f32(). c is f64 for f64, else f32, or the type of bf16 or f16
// operands, to which the sums are then rounded once. Sums are float (double for f64). beta is 0 or 1, and on a CPU 0 if
// c is bf16 or f16. On a CUDA device ctx.products decides how f32 is multiplied. UserError: inner sizes differ, shape of
// c, types.
LMX_API void gemm(Context& ctx, const Tensor& a, bool trans_a, const Tensor& b, bool trans_b, Tensor& c,
                  float beta = 0);

// The same product with f32 inputs rounded to `ctx.compute` first (a plain gemm for f32 and f64).
LMX_API void matmul(Context& ctx, const Tensor& a, bool trans_a, const Tensor& b, bool trans_b, Tensor& c,
                    float beta = 0);

// `t` in ctx.compute's type; `t` itself if it already has that type (f64 stays f64).
LMX_API Tensor to_compute(Context& ctx, const Tensor& t);
// The same, written to `to`, which has t's shape and the type of to_compute(ctx, t).
LMX_API void to_compute(Context& ctx, const Tensor& t, Tensor to);
// `t` (bf16 or f16) as f32, written to `to` (f32).
LMX_API void widen(Context& ctx, const Tensor& t, Tensor to);
// `t` rounded to ctx.compute, in the type that products read fastest: f32 if they run in f32, else ctx.compute's type.
// Use it for an operand that is freed after its products. An operand that is kept longer takes less memory in the type
// of to_compute().
LMX_API Tensor as_operand(Context& ctx, const Tensor& t);
// The same in memory that operand_memory() returned for a tensor of this shape, and that a later product may reuse.
LMX_API Tensor as_operand(Context& ctx, const Tensor& t, const Tensor& memory);
// Undefined if as_operand() returns `t` itself.
LMX_API Tensor operand_memory(Context& ctx, const Tensor& t);
// The type that as_operand() returns on this CPU for ctx.compute = `compute`.
LMX_API DType operand_type(DType compute);
// t (M, N) transposed to (N, M), in type `type`.
LMX_API Tensor transposed(Context& ctx, const Tensor& t, DType type);

// On a device that counts: notes a product (m, k) (k, n) that a kernel computes, `times` times, beside those of gemm()
// and PackedMatrix. No effect on other devices.
LMX_API void count_product(const Context& ctx, int64_t m, int64_t n, int64_t k, int64_t times = 1);

// The right-hand operand of many products with few rows (a recurrent weight), in the layout that is fastest on this
// machine. Immutable; it must be built again after the weight has changed.
class LMX_API PackedMatrix {
 public:
  // op(w): (K, N); w is f32 or f64 and is rounded to ctx.compute. `rows`: the number of rows M of later multiply()
  // calls. Other numbers of rows are possible if layout() is the same for them.
  PackedMatrix(Context& ctx, const Tensor& w, bool trans, int64_t rows);
  // All choices that determine the packed bytes, as a key for storing them with w until w changes. One copy serves all
  // numbers of rows for which this key is equal.
  static std::string layout(const Context& ctx, const Tensor& w, bool trans, int64_t rows);
  ~PackedMatrix();
  PackedMatrix(PackedMatrix&&) noexcept;
  PackedMatrix(const PackedMatrix&) = delete;
  // y (M, N) = x (M, K) * op(w) + beta * y. x is a result of to_compute() or as_operand(), y is f32 (f64 for f64), or on
  // a device the type of x. `memory`: the result of operand_memory() for M rows. Without it multiply() allocates what it
  // needs, which is not possible in a loop of replay_steps().
  void multiply(Context& ctx, const Tensor& x, Tensor& y, float beta = 0, const Tensor& memory = {}) const;
  // Where multiply() stores the parts of x, if products of f32 are bf16x3; otherwise undefined.
  Tensor operand_memory(Context& ctx, int64_t rows) const;
  int64_t bytes() const;  // of the packed copy; 0 if it refers to w itself

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether products of this type run in f32 on this CPU. Their operands keep the storage and rounding of the type. f16
// always does. bf16 does unless the CPU multiplies it faster than f32: with AMX, or with AVX512-BF16 on CPUs other than
// Intel's (on Intel's, this instruction has the same peak rate as f32). The environment variable LMX_BF16=hardware or
// LMX_BF16=fp32 overrides the choice. UserError: another value of LMX_BF16, or `hardware` on a CPU without the
// instructions.
LMX_API bool multiplies_in_f32(DType type);
// The instruction set that GEMMs use here: "avx2", "avx512", "avx512_bf16", "amx_bf16".
LMX_API const char* cpu_isa();

}  // namespace lmx
