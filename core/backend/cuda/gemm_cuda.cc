// GEMM by cuBLASLt. cuBLASLt is column-major: a row-major c = a b is the column-major c^T = b^T a^T, so the operands
// are swapped.
#include <memory>
#include <type_traits>

#include "backend/cuda/cuda_check.h"
#include "backend/gemm_kernel.h"

namespace lmx {
namespace {

constexpr int64_t kWorkspace = int64_t{32} << 20;  // NVIDIA's advice for Hopper

template <class T, cublasStatus_t (*Destroy)(T)>
struct Deleter {
  using pointer = T;
  void operator()(T handle) const { Destroy(handle); }
};
using Handle = std::unique_ptr<void, Deleter<cublasLtHandle_t, cublasLtDestroy>>;
using MatmulDesc = std::unique_ptr<void, Deleter<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using Layout = std::unique_ptr<void, Deleter<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using Preference = std::unique_ptr<void, Deleter<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

cublasLtHandle_t handle() {
  static const Handle shared = [] {
    cublasLtHandle_t h = nullptr;
    LMX_CUDA_CHECK(cublasLtCreate(&h));
    return Handle(h);
  }();
  return shared.get();
}

// A row-major (rows, cols) matrix in cuBLASLt's column-major form: (cols, rows), leading dimension cols.
Layout layout(cudaDataType type, int64_t rows, int64_t cols) {
  cublasLtMatrixLayout_t l = nullptr;
  LMX_CUDA_CHECK(cublasLtMatrixLayoutCreate(&l, type, static_cast<uint64_t>(cols), static_cast<uint64_t>(rows), cols));
  return Layout(l);
}

MatmulDesc description(cublasComputeType_t compute, cudaDataType scale, bool trans_first, bool trans_second) {
  cublasLtMatmulDesc_t d = nullptr;
  LMX_CUDA_CHECK(cublasLtMatmulDescCreate(&d, compute, scale));
  MatmulDesc owned(d);
  const cublasOperation_t first = trans_first ? CUBLAS_OP_T : CUBLAS_OP_N,
                          second = trans_second ? CUBLAS_OP_T : CUBLAS_OP_N;
  LMX_CUDA_CHECK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
  LMX_CUDA_CHECK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
  return owned;
}

template <class Scale>
void multiply(Context& ctx, const GemmCall& g, cudaDataType in, cudaDataType out, cublasComputeType_t compute,
              cudaDataType scale) {
  const MatmulDesc d = description(compute, scale, g.trans_b, g.trans_a);
  const Layout a = g.trans_a ? layout(in, g.k, g.m) : layout(in, g.m, g.k);
  const Layout b = g.trans_b ? layout(in, g.n, g.k) : layout(in, g.k, g.n);
  const Layout c = layout(out, g.m, g.n);
  cublasLtMatmulPreference_t p = nullptr;
  LMX_CUDA_CHECK(cublasLtMatmulPreferenceCreate(&p));
  const Preference preference(p);
  const auto bytes = static_cast<size_t>(kWorkspace);
  LMX_CUDA_CHECK(
      cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  LMX_CUDA_CHECK(
      cublasLtMatmulAlgoGetHeuristic(handle(), d.get(), b.get(), a.get(), c.get(), c.get(), p, 1, &best, &found));
  if (found == 0) {
    throw RunError(str("[gemm] cuBLASLt has no algorithm for (", g.m, ", ", g.k, ") x (", g.k, ", ", g.n, ")"));
  }
  const Scale alpha = 1, beta = static_cast<Scale>(g.beta);
  Tensor workspace = ctx.empty({kWorkspace}, DType::u8);
  LMX_CUDA_CHECK(cublasLtMatmul(handle(), d.get(), &alpha, g.b, b.get(), g.a, a.get(), &beta, g.c, c.get(), g.c,
                                c.get(), &best.algo, workspace.raw(), bytes, nullptr));
}

template <class T>
void run(Context& ctx, const Gemm<T>& g) {
  if constexpr (std::is_same_v<T, double>) {
    multiply<double>(ctx, g, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, CUDA_R_64F);
  } else {
    constexpr cudaDataType_t kType = std::is_same_v<T, float>      ? CUDA_R_32F
                                     : std::is_same_v<T, bfloat16> ? CUDA_R_16BF
                                                                   : CUDA_R_16F;
    multiply<float>(ctx, g, kType, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  }
}

const KernelAdder adder(Device::Kind::cuda, run<double>, run<float>, run<bfloat16>, run<float16>);

}  // namespace
}  // namespace lmx
