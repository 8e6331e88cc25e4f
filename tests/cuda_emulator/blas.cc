// Products of matrices of the emulated device: column-major layouts, transposes, batches and epilogues of cuBLASLt.
//
// As in cuBLASLt, an algorithm is chosen for a computation, and for the alignment of the operands that the preference
// gives (256 bytes unless it says otherwise) and of the leading dimensions. A product of another computation, or whose
// operands are aligned less, is refused.
//
// CUBLAS_COMPUTE_32F_FAST_TF32 rounds the operands to TF32, as tensor cores do.
//
// LMX_EMULATED_ERROR: with `bias`, products with a bias are not supported; with `no_bias`, they have no algorithm.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "fault.h"
#include "include/cublasLt.h"
#include "memory.h"
#include "stream.h"

namespace {

using namespace cuda_emulator;

struct Layout {
  cudaDataType type;
  int64_t rows, cols, ld;
  int32_t batch;
  int64_t stride;  // elements from one matrix of a batch to the next
};
struct Description {
  cublasComputeType_t compute;
  cudaDataType scale;
  int32_t trans_a, trans_b;
  uint32_t epilogue;
  void* bias;
  int32_t bias_type;  // -1: the type of D
};
struct Preference {
  uint64_t workspace;
  std::array<uint32_t, 4> alignment;  // of A, B, C, D
  uint32_t reduction;                 // schemes that are allowed
};
struct Algorithm {
  uint64_t workspace;
  std::array<uint32_t, 4> alignment;
  std::array<uint32_t, 4> columns;  // alignment of the leading dimensions
  cublasComputeType_t compute;
  // Whether the sum of the first half of the products is rounded to the type of the result, as an algorithm does that
  // splits a product and passes partial sums on in that type.
  bool rounds_parts;
  uint64_t magic;
};
constexpr uint64_t kMagic = 0x6c6d7867656d6d00;

// Descriptors are opaque blocks of CUDA's size, which hold the structs above.
template <class T, class Opaque>
T& held(Opaque* opaque) {
  static_assert(sizeof(T) <= sizeof(Opaque) && std::is_trivially_copyable_v<T>);
  return *reinterpret_cast<T*>(opaque->data);
}

template <class T>
cublasStatus_t set(T& to, const void* value, size_t bytes) {
  if (!value || bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

size_t size_of(cudaDataType type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

double half_to_double(uint16_t h) {
  return static_cast<double>(std::bit_cast<_Float16>(h));
}
float bfloat_to_float(uint16_t h) {
  return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
}
uint16_t float_to_bfloat(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (x != x) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

double load(const void* from, cudaDataType type, int64_t i) {
  const auto at = static_cast<size_t>(i);
  if (type == CUDA_R_64F) return static_cast<const double*>(from)[at];
  if (type == CUDA_R_32F) return static_cast<double>(static_cast<const float*>(from)[at]);
  const uint16_t bits = static_cast<const uint16_t*>(from)[at];
  return type == CUDA_R_16F ? half_to_double(bits) : static_cast<double>(bfloat_to_float(bits));
}

void store(void* to, cudaDataType type, int64_t i, double x) {
  const auto at = static_cast<size_t>(i);
  if (type == CUDA_R_64F)
    static_cast<double*>(to)[at] = x;
  else if (type == CUDA_R_32F)
    static_cast<float*>(to)[at] = static_cast<float>(x);
  else
    static_cast<uint16_t*>(to)[at] =
        type == CUDA_R_16F ? std::bit_cast<uint16_t>(static_cast<_Float16>(x)) : float_to_bfloat(static_cast<float>(x));
}

const void* advanced(const void* from, cudaDataType type, int64_t elements) {
  return static_cast<const char*>(from) + elements * static_cast<int64_t>(size_of(type));
}
void* advanced(void* from, cudaDataType type, int64_t elements) {
  return static_cast<char*>(from) + elements * static_cast<int64_t>(size_of(type));
}

struct Product {
  Description description;
  Layout a_layout, b_layout, c_layout, d_layout;
  double alpha, beta;
  const void *a, *b, *c;
  void* d;
};

// The nearest number with TF32's mantissa of 10 bits; of two, the one that is farther from zero.
float rounded_to_tf32(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::isfinite(x) ? std::bit_cast<float>((bits + 0x1000) & ~uint32_t{0x1fff}) : x;
}

// op(x) (rows, cols), column-major without gaps. Accumulation is in T.
template <class T>
std::vector<T> operand(const void* x, const Layout& l, bool transposed) {
  const int64_t rows = transposed ? l.cols : l.rows, cols = transposed ? l.rows : l.cols;
  std::vector<T> out(static_cast<size_t>(rows * cols));
  for (int64_t j = 0; j < cols; ++j)
    for (int64_t i = 0; i < rows; ++i)
      out[static_cast<size_t>(j * rows + i)] =
          static_cast<T>(load(x, l.type, transposed ? i * l.ld + j : j * l.ld + i));
  return out;
}

template <class T>
T rounded_to(cudaDataType type, T value) {
  alignas(double) std::array<std::byte, sizeof(double)> stored;
  store(stored.data(), type, 0, value);
  return static_cast<T>(load(stored.data(), type, 0));
}

template <class T>
void multiply_one(const Product& p, int32_t index, bool rounds_parts) {
  const Layout &la = p.a_layout, &lb = p.b_layout, &lc = p.c_layout, &ld = p.d_layout;
  auto a = operand<T>(advanced(p.a, la.type, index * la.stride), la, p.description.trans_a != 0);
  auto b = operand<T>(advanced(p.b, lb.type, index * lb.stride), lb, p.description.trans_b != 0);
  if constexpr (std::is_same_v<T, float>) {
    if (p.description.compute == CUBLAS_COMPUTE_32F_FAST_TF32)
      for (std::vector<float>* values : {&a, &b})
        std::transform(values->begin(), values->end(), values->begin(), rounded_to_tf32);
  }
  const int64_t m = ld.rows, n = ld.cols, k = p.description.trans_a ? la.rows : la.cols;
  const void* c = advanced(p.c, lc.type, index * lc.stride);
  void* d = advanced(p.d, ld.type, index * ld.stride);
  const bool relu = p.description.epilogue & CUBLASLT_EPILOGUE_RELU,
             bias = p.description.epilogue & CUBLASLT_EPILOGUE_BIAS;
  const auto bias_type = p.description.bias_type < 0 ? ld.type : static_cast<cudaDataType>(p.description.bias_type);
  std::vector<T> column(static_cast<size_t>(m));
  for (int64_t j = 0; j < n; ++j) {
    std::fill(column.begin(), column.end(), T{0});
    for (int64_t l = 0; l < k; ++l) {
      const T factor = b[static_cast<size_t>(j * k + l)];
      const T* from = a.data() + l * m;
      for (int64_t i = 0; i < m; ++i) column[static_cast<size_t>(i)] += from[i] * factor;
      if (rounds_parts && l == k / 2)
        for (T& sum : column) sum = rounded_to(ld.type, sum);
    }
    for (int64_t i = 0; i < m; ++i) {
      double x = p.alpha * static_cast<double>(column[static_cast<size_t>(i)]);
      if (p.beta != 0) x += p.beta * load(c, lc.type, j * lc.ld + i);
      if (bias) x += load(p.description.bias, bias_type, i);
      if (relu && x < 0) x = 0;
      store(d, ld.type, j * ld.ld + i, x);
    }
  }
}

bool consistent(const Product& p) {
  const Layout &a = p.a_layout, &b = p.b_layout, &c = p.c_layout, &d = p.d_layout;
  const int64_t m = p.description.trans_a ? a.cols : a.rows, k = p.description.trans_a ? a.rows : a.cols;
  const int64_t k2 = p.description.trans_b ? b.cols : b.rows, n = p.description.trans_b ? b.rows : b.cols;
  const auto columns_fit = [](const Layout& l) { return l.ld >= l.rows; };
  return k == k2 && d.rows == m && d.cols == n && c.rows == m && c.cols == n && columns_fit(a) && columns_fit(b) &&
         columns_fit(c) && columns_fit(d) && a.batch == d.batch && b.batch == d.batch && c.batch == d.batch;
}

// The combinations of types that cuBLASLt offers and lmx may use.
bool supported(const Product& p) {
  const cudaDataType in = p.a_layout.type, out = p.d_layout.type;
  if (p.b_layout.type != in || p.c_layout.type != out) return false;
  if (p.description.compute == CUBLAS_COMPUTE_64F)
    return in == CUDA_R_64F && out == CUDA_R_64F && p.description.epilogue == CUBLASLT_EPILOGUE_DEFAULT;
  if (p.description.scale != CUDA_R_32F || in == CUDA_R_64F) return false;
  if (p.description.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && in != CUDA_R_32F) return false;
  return out == CUDA_R_32F || (out == in && in != CUDA_R_32F);
}

// Bytes that each column of the four matrices is aligned to if the first is: a power of two, 16 at most.
std::array<uint32_t, 4> columns_alignment(const Product& p) {
  const auto of = [](const Layout& l) {
    const auto bytes = static_cast<uint64_t>(l.ld) * size_of(l.type);
    return uint32_t{1} << std::countr_zero(bytes | 16);
  };
  return {of(p.a_layout), of(p.b_layout), of(p.c_layout), of(p.d_layout)};
}

bool aligned(const Product& p, const Algorithm& algorithm) {
  const std::array<const void*, 4> at{p.a, p.b, p.c, p.d};
  const auto columns = columns_alignment(p);
  for (size_t i = 0; i < at.size(); ++i)
    if (reinterpret_cast<uintptr_t>(at[i]) % algorithm.alignment[i] != 0 || columns[i] < algorithm.columns[i])
      return false;
  return true;
}

void check_ranges(const Product& p) {
  const auto check = [](const void* at, const Layout& l) {
    if (l.rows == 0 || l.cols == 0) return;
    const int64_t elements = (l.batch - 1) * l.stride + (l.cols - 1) * l.ld + l.rows;
    check_range("a product of matrices", at, static_cast<size_t>(elements) * size_of(l.type));
  };
  check(p.a, p.a_layout);
  check(p.b, p.b_layout);
  if (p.beta != 0) check(p.c, p.c_layout);
  check(p.d, p.d_layout);
  if (p.description.epilogue & CUBLASLT_EPILOGUE_BIAS)
    check_range("the bias of a product", p.description.bias,
                static_cast<size_t>(p.d_layout.rows) * size_of(p.d_layout.type));
}

template <class Opaque>
cublasStatus_t destroyed(Opaque* opaque) {
  delete opaque;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

struct cublasLtContext {};

extern "C" {

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown status";
}

size_t cublasLtGetVersion() {
  return 0;
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return destroyed(handle);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  *layout = new cublasLtMatrixLayoutOpaque_t{};
  held<Layout>(*layout) = {type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), ld, 1, 0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroyed(layout);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  Layout& l = held<Layout>(layout);
  return attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? set(l.batch, value, bytes) : set(l.stride, value, bytes);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *description = new cublasLtMatmulDescOpaque_t{};
  held<Description>(*description) = {compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr, -1};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return destroyed(description);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  Description& d = held<Description>(description);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(d.trans_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(d.trans_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(d.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(d.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return set(d.bias_type, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t{};
  held<Preference>(*preference) = {0, {256, 256, 256, 256}, CUBLASLT_REDUCTION_SCHEME_MASK};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroyed(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  Preference& p = held<Preference>(preference);
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return set(p.workspace, value, bytes);
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) return set(p.reduction, value, bytes);
  return set(p.alignment[static_cast<size_t>(attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)], value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  if (!handle || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const Product p{held<Description>(description),
                  held<Layout>(a),
                  held<Layout>(b),
                  held<Layout>(c),
                  held<Layout>(d),
                  1,
                  0,
                  nullptr,
                  nullptr,
                  nullptr,
                  nullptr};
  if (!consistent(p)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!supported(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.description.epilogue & CUBLASLT_EPILOGUE_BIAS) {
    const std::string error = wanted_error();
    if (error == "bias") return CUBLAS_STATUS_NOT_SUPPORTED;
    if (error == "no_bias") return CUBLAS_STATUS_SUCCESS;  // the list of algorithms is empty
  }
  const Preference& wish = held<Preference>(preference);
  results[0] = {};
  results[0].workspaceSize = wish.workspace / 2;
  // In place, an algorithm rounds partial sums as well.
  const bool rounds_parts = wish.reduction & ~static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  held<Algorithm>(&results[0].algo) = {
      wish.workspace / 2, wish.alignment, columns_alignment(p), p.description.compute, rounds_parts, kMagic};
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  if (!handle || !algo) return CUBLAS_STATUS_INVALID_VALUE;
  const std::lock_guard lock(device_mutex());
  cublasLtMatmulAlgo_t copy = *algo;
  const Algorithm& chosen = held<Algorithm>(&copy);
  Product p{held<Description>(description),
            held<Layout>(a_layout),
            held<Layout>(b_layout),
            held<Layout>(c_layout),
            held<Layout>(d_layout),
            0,
            0,
            a,
            b,
            c,
            d};
  const bool wide = p.description.scale == CUDA_R_64F;
  p.alpha = wide ? *static_cast<const double*>(alpha) : static_cast<double>(*static_cast<const float*>(alpha));
  p.beta = wide ? *static_cast<const double*>(beta) : static_cast<double>(*static_cast<const float*>(beta));
  if (chosen.magic != kMagic || chosen.compute != p.description.compute) return CUBLAS_STATUS_INVALID_VALUE;
  if (!consistent(p) || !aligned(p, chosen)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!supported(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (workspace_bytes < chosen.workspace) return CUBLAS_STATUS_INVALID_VALUE;
  if (chosen.workspace > 0) check_range("a product's workspace", workspace, chosen.workspace);
  check_ranges(p);
  enqueue(stream, [p, rounds_parts = chosen.rounds_parts] {
    for (int32_t i = 0; i < p.d_layout.batch; ++i) {
      if (p.description.compute == CUBLAS_COMPUTE_64F)
        multiply_one<double>(p, i, rounds_parts);
      else
        multiply_one<float>(p, i, rounds_parts);
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
