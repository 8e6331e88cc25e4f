// GEMM by cuBLASLt. cuBLASLt is column-major: a row-major c = a b is the column-major c^T = b^T a^T, so the operands
// are swapped.
#include <array>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <type_traits>

#include "backend/cuda/device.h"
#include "backend/gemm_kernel.h"

namespace lmx {
namespace {

constexpr int64_t kWorkspace = int64_t{32} << 20;  // NVIDIA's advice for Hopper
constexpr int64_t kRowBucket = 128;                // an algorithm serves all numbers of rows of a bucket
constexpr uint32_t kMostAlignment = 256;           // as cuBLASLt assumes by default
constexpr size_t kMostPlans = 4096;                // of a device; batches of sentences vary in their number of rows

template <class T, cublasStatus_t (*Destroy)(T)>
struct Deleter {
  using pointer = T;
  void operator()(T handle) const { Destroy(handle); }
};
using MatmulDesc = std::unique_ptr<void, Deleter<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using Layout = std::unique_ptr<void, Deleter<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using Preference = std::unique_ptr<void, Deleter<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

struct Types {
  cudaDataType in, out, scale;
  cublasComputeType_t compute;
};

// A row-major (rows, cols) matrix in cuBLASLt's column-major form: (cols, rows), leading dimension cols.
Layout layout(cudaDataType type, int64_t rows, int64_t cols) {
  cublasLtMatrixLayout_t l = nullptr;
  LMX_CUDA_CHECK(cublasLtMatrixLayoutCreate(&l, type, static_cast<uint64_t>(cols), static_cast<uint64_t>(rows), cols));
  return Layout(l);
}

// The operands in row-major terms. cuBLASLt's A is b, and its B is a.
struct Description {
  Description(const GemmCall& g, const Types& t)
      : a(g.trans_a ? layout(t.in, g.k, g.m) : layout(t.in, g.m, g.k)),
        b(g.trans_b ? layout(t.in, g.n, g.k) : layout(t.in, g.k, g.n)),
        c(layout(t.out, g.m, g.n)) {
    cublasLtMatmulDesc_t d = nullptr;
    LMX_CUDA_CHECK(cublasLtMatmulDescCreate(&d, t.compute, t.scale));
    product = MatmulDesc(d);
    const int32_t first = g.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, second = g.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    LMX_CUDA_CHECK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    LMX_CUDA_CHECK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    if (!g.bias) return;
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;  // the bias has the type of c
    LMX_CUDA_CHECK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    set_bias(g);
  }
  // The address of the bias is part of the description, but not of its shape.
  void set_bias(const GemmCall& g) const {
    LMX_CUDA_CHECK(
        cublasLtMatmulDescSetAttribute(product.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g.bias, sizeof g.bias));
  }
  MatmulDesc product;
  Layout a, b, c;
};

// The largest power of two that divides an address, as far as it matters.
uint32_t alignment(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p) | kMostAlignment;
  return static_cast<uint32_t>(uintptr_t{1} << std::countr_zero(address));
}

// types of a, c and the computation, m, n, k, transposed, bias
using ShapeKey = std::tuple<int, int, int, int64_t, int64_t, int64_t, bool, bool, bool>;
using Alignments = std::array<uint32_t, 3>;  // of a, b and c
using AlgorithmKey = std::tuple<int, int, int, int64_t, int64_t, int64_t, bool, bool, bool, bool, Alignments>;

// Products of one device: the handle, descriptions by shape, algorithms by bucket, and the workspaces. Work of one
// stream runs in order, so one workspace serves all its products.
class Products {
 public:
  explicit Products(int index) {
    CudaDevice& device = cuda::device(index);
    device.select();
    LMX_CUDA_CHECK(cublasLtCreate(&handle_));
  }

  // False, and nothing is enqueued, if cuBLASLt has no algorithm for the product with its bias.
  template <class Scale>
  bool multiply(Context& ctx, const GemmCall& g, const Types& types) {
    const std::lock_guard lock(mutex_);
    cuda::device(ctx.device.index).select();
    const cublasLtMatmulAlgo_t* of_bucket = algorithm(g, types, bucket_of(g));
    if (!of_bucket) return false;
    cuda::begin_launch(ctx, Gemm<Scale>::kName);
    const Description& d = description(g, types);
    if (g.bias) d.set_bias(g);
    Tensor& workspace = workspaces_[static_cast<size_t>(work_stream())];
    if (!workspace.defined())
      workspace = Tensor::empty(cuda::device(ctx.device.index).memory(), {kWorkspace}, DType::u8, MemClass::other);
    const Scale alpha = 1, beta = static_cast<Scale>(g.beta);
    const auto enqueue = [&](const cublasLtMatmulAlgo_t& algo) {
      return cublasLtMatmul(handle_, d.product.get(), &alpha, g.b, d.b.get(), g.a, d.a.get(), &beta, g.c, d.c.get(),
                            g.c, d.c.get(), &algo, workspace.raw(), kWorkspace, cuda::stream_of(ctx));
    };
    cublasStatus_t status = enqueue(*of_bucket);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
      // The bucket's algorithm does not suit this number of rows.
      const cublasLtMatmulAlgo_t* of_rows = algorithm(g, types, g.m);
      if (!of_rows) return false;
      status = enqueue(*of_rows);
    }
    LMX_CUDA_CHECK(status);
    return true;
  }

 private:
  const Description& description(const GemmCall& g, const Types& t) {
    const ShapeKey key{t.in, t.out, t.compute, g.m, g.n, g.k, g.trans_a, g.trans_b, g.bias != nullptr};
    const auto found = descriptions_.find(key);
    if (found != descriptions_.end()) return found->second;
    if (descriptions_.size() >= kMostPlans) descriptions_.clear();
    return descriptions_.emplace(key, Description(g, t)).first->second;
  }

  // The number of rows for which a product's algorithm is chosen. The rows of a transposed `a` are its leading
  // dimension, and an algorithm that loads 16 bytes at once for a multiple of 128 cannot do so for each smaller number.
  static int64_t bucket_of(const GemmCall& g) {
    return g.trans_a ? g.m : (g.m + kRowBucket - 1) / kRowBucket * kRowBucket;
  }

  // The algorithm of a product with this number of rows. Null if cuBLASLt has none for the product with its bias, which
  // is remembered as well. RunError: it has none for a product without a bias.
  const cublasLtMatmulAlgo_t* algorithm(GemmCall g, const Types& t, int64_t rows) {
    g.m = rows;
    const Alignments at{alignment(g.a), alignment(g.b), alignment(g.c)};
    const AlgorithmKey key{t.in,      t.out,       t.compute,         g.m, g.n, g.k, g.trans_a,
                           g.trans_b, g.beta != 0, g.bias != nullptr, at};
    auto found = algorithms_.find(key);
    if (found == algorithms_.end()) {
      if (algorithms_.size() >= kMostPlans) algorithms_.clear();
      found = algorithms_.emplace(key, choose_algorithm(g, t, at)).first;
    }
    if (found->second) return &*found->second;
    if (g.bias) return nullptr;
    throw RunError(str("[gemm] cuBLASLt has no algorithm for (", g.m, ", ", g.k, ") x (", g.k, ", ", g.n, ")"));
  }

  // The first algorithm of cuBLASLt's heuristic, without a measurement. So the choice depends on the shape, the GPU and
  // the version of cuBLASLt alone, and a run can be repeated bit by bit.
  std::optional<cublasLtMatmulAlgo_t> choose_algorithm(const GemmCall& g, const Types& t, const Alignments& at) {
    const Description d(g, t);
    cublasLtMatmulPreference_t p = nullptr;
    LMX_CUDA_CHECK(cublasLtMatmulPreferenceCreate(&p));
    const Preference preference(p);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      LMX_CUDA_CHECK(cublasLtMatmulPreferenceSetAttribute(p, attribute, &value, sizeof value));
    };
    const auto [at_a, at_b, at_c] = at;
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspace));
    // A 16-bit result is rounded once: the parts of a product that is split are added in f32.
    if (t.out != t.scale)
      set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, at_b);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, at_a);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, at_c);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, at_c);
    cublasLtMatmulHeuristicResult_t best{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, d.product.get(), d.b.get(), d.a.get(),
                                                                 d.c.get(), d.c.get(), p, 1, &best, &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return std::nullopt;
    LMX_CUDA_CHECK(status);
    if (count == 0 || best.state != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    return best.algo;
  }

  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<ShapeKey, Description> descriptions_;
  std::map<AlgorithmKey, std::optional<cublasLtMatmulAlgo_t>> algorithms_;
  std::array<Tensor, kWorkStreams> workspaces_;  // made at the first product of a stream
};

// Never destroyed, as cuda::device().
Products& products(int index) {
  static std::mutex& mutex = *new std::mutex;
  static std::map<int, Products>& all = *new std::map<int, Products>;
  const std::lock_guard lock(mutex);
  return all.try_emplace(index, index).first->second;
}

template <class T>
bool multiplied(Context& ctx, const Gemm<T>& g) {
  Products& device = products(ctx.device.index);
  if constexpr (std::is_same_v<T, double>) {
    return device.multiply<double>(ctx, g, {CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F});
  } else {
    constexpr cudaDataType_t kType = std::is_same_v<T, float>      ? CUDA_R_32F
                                     : std::is_same_v<T, bfloat16> ? CUDA_R_16BF
                                                                   : CUDA_R_16F;
    const cudaDataType out = g.c_type == DType::f32 ? CUDA_R_32F : kType;
    const bool rounds = kType == CUDA_R_32F && g.products == F32Products::tf32;
    return device.multiply<float>(ctx, g,
                                  {kType, out, CUDA_R_32F, rounds ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F});
  }
}

template <class T>
void run(Context& ctx, const Gemm<T>& g) {
  const bool multiplies = multiplied(ctx, g);
  if (g.bias) *g.bias_added = multiplies;
}

const KernelAdder adder(Device::Kind::cuda, run<double>, run<float>, run<bfloat16>, run<float16>);

}  // namespace
}  // namespace lmx
