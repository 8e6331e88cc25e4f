// GEMM on the CPU: oneDNN for f32 and, where the CPU multiplies bf16 in hardware, bf16. Elsewhere bf16, and f16
// everywhere, keep their storage and rounding and are multiplied in f32.
#include "backend/convert.h"
#include "backend/gemm_kernel.h"
#include "backend/onednn.h"
#include "lmx/matmul.h"
#include "lmx/parallel.h"

namespace lmx {

namespace {

// oneDNN settles on what the CPU, the kernel and ONEDNN_MAX_CPU_ISA allow. Its values are sets of bits, not a ladder: AVX2
// with VNNI is a larger number than AVX-512.
bool onednn_has(dnnl::cpu_isa isa) {
  const auto wanted = static_cast<unsigned>(isa);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

}  // namespace

bool cpu_has_bf16() { return onednn_has(dnnl::cpu_isa::avx512_core_bf16); }

bool multiplies_in_f32(DType type) {
  return type == DType::f32 || type == DType::f16 || (type == DType::bf16 && !cpu_has_bf16());
}

const char* cpu_isa() {
  if (onednn_has(dnnl::cpu_isa::avx512_core_amx)) return "amx_bf16";
  if (cpu_has_bf16()) return "avx512_bf16";
  return onednn_has(dnnl::cpu_isa::avx512_core) ? "avx512" : "avx2";
}

namespace {

void gemm_f32(Context& ctx, const GemmCall& g) {
  dnnl_matmul({g.m, g.n, g.k, g.trans_a, g.trans_b, false, g.beta != 0, dnnl::memory::data_type::f32, num_threads()})
      .execute(ctx, g.a, g.b, g.c);
}

// The operand `count` elements long, widened to f32.
template <class T>
Tensor widened(Context& ctx, const void* data, int64_t count) {
  Tensor wide = ctx.empty({count});
  if constexpr (std::is_same_v<T, bfloat16>) {
    from_bf16(static_cast<const T*>(data), wide.data<float>(), count);
  } else {
    from_f16(static_cast<const T*>(data), wide.data<float>(), count);
  }
  return wide;
}

template <class T>
void gemm_through_f32(Context& ctx, const GemmCall& g) {
  const Tensor a = widened<T>(ctx, g.a, g.m * g.k), b = widened<T>(ctx, g.b, g.k * g.n);
  GemmCall wide = g;
  wide.a = a.raw();
  wide.b = b.raw();
  gemm_f32(ctx, wide);
}

void gemm_bf16(Context& ctx, const GemmCall& g) {
  if (!cpu_has_bf16()) return gemm_through_f32<bfloat16>(ctx, g);
  // oneDNN's fast bf16 products want a row-major left side: a transposed one is copied.
  Tensor copy;
  const void* a = g.a;
  if (g.trans_a) {
    copy = ctx.empty({g.m, g.k}, DType::bf16);
    transpose(static_cast<const bfloat16*>(g.a), copy.data<bfloat16>(), g.k, g.m);
    a = copy.raw();
  }
  dnnl_matmul({g.m, g.n, g.k, false, g.trans_b, false, g.beta != 0, dnnl::memory::data_type::bf16, num_threads()})
      .execute(ctx, a, g.b, g.c);
}

// Only gradient checks multiply doubles: plain loops, threaded over rows.
void gemm_f64(Context&, const GemmCall& g) {
  const auto* a = static_cast<const double*>(g.a);
  const auto* b = static_cast<const double*>(g.b);
  auto* c = static_cast<double*>(g.c);
  parallel_for(g.m, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < g.n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < g.k; ++k) {
          sum += (g.trans_a ? a[k * g.m + i] : a[i * g.k + k]) * (g.trans_b ? b[j * g.k + k] : b[k * g.n + j]);
        }
        c[i * g.n + j] = sum + (g.beta != 0 ? c[i * g.n + j] : 0.0);
      }
    }
  });
}

void add(DType type, GemmKernel k) {
  add_kernel("gemm", Device::Kind::cpu, type, reinterpret_cast<AnyKernel>(k));
}

}  // namespace

int64_t gemm_scratch_bytes(DType type, int64_t m, int64_t n, int64_t k, bool trans_a) {
  if (type == DType::f32 || type == DType::f64) return 0;
  if (multiplies_in_f32(type)) return 4 * (m * k + k * n);
  return trans_a ? 2 * m * k : 0;
}

void add_cpu_gemm() {
  add(DType::f64, gemm_f64);
  add(DType::f32, gemm_f32);
  add(DType::bf16, gemm_bf16);
  add(DType::f16, gemm_through_f32<float16>);
}

}  // namespace lmx
