// GEMM on the CPU: oneDNN for f32, and for bf16 if the hardware multiplies bf16 faster than f32. On other CPUs bf16 is
// stored and rounded as bf16, but multiplied in f32; f16 is always multiplied in f32.
#include <cstdlib>
#include <string_view>

#include "backend/convert.h"
#include "backend/gemm_kernel.h"
#include "backend/onednn.h"
#include "lmx/error.h"
#include "lmx/matmul.h"
#include "lmx/parallel.h"
#include "tensor/planned_products.h"

namespace lmx {

namespace {

// Returns whether oneDNN uses an instruction set, given the CPU, the kernel and ONEDNN_MAX_CPU_ISA. The values are sets
// of bits and not ordered: AVX2 with VNNI is a larger number than AVX-512.
bool onednn_has(dnnl::cpu_isa isa) {
  const auto wanted = static_cast<unsigned>(isa);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

// Intel's VDPBF16PS processes twice as many numbers as an f32 FMA, but in twice the time, and oneDNN 2.6 reaches 0.55
// of the peak with it (Sapphire Rapids with AMX hidden: 170 GFLOP/s, f32 310). On AMD's Zen 4 and 5 it has twice f32's
// peak.
bool bf16_is_faster() {
  if (onednn_has(dnnl::cpu_isa::avx512_core_amx)) return true;
  return onednn_has(dnnl::cpu_isa::avx512_core_bf16) && !__builtin_cpu_is("intel");
}

bool bf16_in_hardware() {
  const char* wish = std::getenv("LMX_BF16");
  const std::string_view value = wish ? wish : "";
  if (value.empty()) return bf16_is_faster();
  if (value != "hardware" && value != "fp32")
    throw UserError(str("[gemm] LMX_BF16 is '", value, "'; it is hardware or fp32"));
  const bool hardware = value == "hardware";
  if (hardware && !onednn_has(dnnl::cpu_isa::avx512_core_bf16))
    throw UserError("[gemm] LMX_BF16 is hardware, but this CPU has no instructions for bf16 (AVX512-BF16 or AMX)");
  return hardware;
}

}  // namespace

bool multiplies_in_f32(DType type) {
  if (const ProductSupport* planned = planned_products(); planned && planned->gpu) return type == DType::f32;
  if (type != DType::bf16) return type == DType::f32 || type == DType::f16;
  if (const ProductSupport* planned = planned_products()) return !planned->bf16;
  static const bool hardware = bf16_in_hardware();
  return !hardware;
}

const char* cpu_isa() {
  if (!multiplies_in_f32(DType::bf16)) return onednn_has(dnnl::cpu_isa::avx512_core_amx) ? "amx_bf16" : "avx512_bf16";
  return onednn_has(dnnl::cpu_isa::avx512_core) ? "avx512" : "avx2";
}

namespace {

using memory = dnnl::memory;

// A right side is packed first if the left side has at least this number of rows. Packing takes as much time as the
// product of 10 to 50 rows. Products with a packed right side are 5 to 8 % faster in f32 and 10 to 20 % in bf16.
constexpr int64_t kPackRows = 640;
// A larger right side, such as an output layer's weight, is not packed: its copy would take too much memory.
constexpr int64_t kPackElements = int64_t{1} << 22;

bool packs(int64_t m, int64_t n, int64_t k) {
  return m >= kPackRows && k * n <= kPackElements;
}

// c = op(a) op(b) + beta c + bias by a product of `type`. a has this type; b has this type or bf16.
void multiply(Context& ctx, const GemmCall& g, memory::data_type type) {
  const bool widens = g.b_type == DType::bf16 && type == memory::data_type::f32;
  if (planned_products() && ctx.device.counts) {
    // oneDNN cannot be asked about another processor. Its blocks have the size of the matrix, up to padded edges.
    const DType packed = type == memory::data_type::f32 ? DType::f32 : DType::bf16;
    if (packs(g.m, g.n, g.k) || widens) ctx.empty({g.k, g.n}, packed);
    return;
  }
  const auto result = g.c_type == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const DnnlMatmul::Key key{g.m,         g.n,  g.k,           g.trans_a,         g.trans_b, false,
                            g.beta != 0, type, num_threads(), g.bias != nullptr, result};
  if (const DnnlMatmul* product = packs(g.m, g.n, g.k) ? packed_matmul(key) : nullptr) {
    const auto from = widens ? memory::data_type::bf16 : type;
    const Tensor b = packed_right_side(ctx, g.b, from, g.trans_b, *product, MemClass::activations);
    return product->execute(ctx, g.a, b.raw(), g.c, g.bias);
  }
  const Tensor wide = widens ? widened(ctx, g.b, DType::bf16, g.k * g.n) : Tensor();
  dnnl_matmul(key).execute(ctx, g.a, widens ? wide.raw() : g.b, g.c, g.bias);
}

// Multiplies operands of bf16, f16 and f32 by a product of f32.
void gemm_f32(Context& ctx, const GemmCall& g) {
  GemmCall call = g;
  Tensor a, b;
  if (g.a_type != DType::f32) {
    a = widened(ctx, g.a, g.a_type, g.m * g.k);
    call.a = a.raw();
  }
  if (g.b_type == DType::f16) {  // oneDNN reads bf16, but not f16
    b = widened(ctx, g.b, g.b_type, g.k * g.n);
    call.b = b.raw();
    call.b_type = DType::f32;
  }
  multiply(ctx, call, memory::data_type::f32);
}

void gemm_bf16(Context& ctx, const GemmCall& g) {
  if (multiplies_in_f32(DType::bf16)) return gemm_f32(ctx, g);
  GemmCall call = g;
  Tensor left;
  if (g.trans_a) {  // oneDNN's fast bf16 products need a row-major left side
    left = ctx.empty({g.m, g.k}, DType::bf16);
    if (!ctx.device.counts) transpose(static_cast<const bfloat16*>(g.a), left.data<bfloat16>(), g.k, g.m);
    call.a = left.raw();
    call.trans_a = false;
  }
  multiply(ctx, call, memory::data_type::bf16);
}

// Used by gradient checks only, so it consists of plain loops, with threads over rows.
void gemm_f64(Context& ctx, const GemmCall& g) {
  if (ctx.device.counts) return;
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

template <class T>
void run(Context& ctx, const Gemm<T>& g) {
  if constexpr (std::is_same_v<T, double>) return gemm_f64(ctx, g);
  GemmCall call = g;
  Tensor sums;
  if (g.c_type != DType::f32 && multiplies_in_f32(g.c_type)) {
    sums = ctx.empty({g.m * g.n});
    call.c = sums.raw();
    call.c_type = DType::f32;
  }
  if constexpr (std::is_same_v<T, bfloat16>)
    gemm_bf16(ctx, call);
  else
    gemm_f32(ctx, call);
  if (ctx.device.counts || !sums.defined()) return;
  if (g.c_type == DType::bf16) to_bf16(sums.data<float>(), static_cast<bfloat16*>(g.c), sums.numel());
  if (g.c_type == DType::f16) to_f16(sums.data<float>(), static_cast<float16*>(g.c), sums.numel());
}

const KernelAdder adder(Device::Kind::cpu, run<double>, run<float>, run<bfloat16>, run<float16>);

}  // namespace

}  // namespace lmx
