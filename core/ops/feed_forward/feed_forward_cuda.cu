#include "ops/feed_forward/feed_forward.h"

#include "backend/cuda/columns.cuh"
#include "ops/layers/masked.cuh"

namespace lmx::ops {
namespace {

// The parts of N neighbouring units from column `column` of a row on, plus their biases.
template <class A, int N, class S, class T>
__device__ void load_parts(const S* row, const float* bias, int64_t cols, int64_t column, T (&to)[N][A::kParts]) {
  LMX_UNROLL
  for (int part = 0; part < A::kParts; ++part) {
    const int64_t at = part * cols + column;
    S z[N];
    cuda::elements_at(row + at, z);
    float biases[N]{};
    if (bias) cuda::elements_at(bias + at, biases);
    LMX_UNROLL
    for (int e = 0; e < N; ++e) {
      const T value = static_cast<T>(z[e]);
      to[e][part] = bias ? value + static_cast<T>(biases[e]) : value;
    }
  }
}

template <class A, class S>
struct UnitElements {
  using Value = Computed<S>;
  FeedForwardUnits<A, S> a;
  bool aligned() const {
    return a.cols % cuda::kQuad == 0 && cuda::aligned_quads(a.z, a.y) && cuda::aligned_quads(a.bias);
  }
  __device__ void operator()(int64_t i) const { elements<1>(i); }
  __device__ void quad(int64_t i) const { elements<cuda::kQuad>(i); }
  template <int N>
  __device__ void elements(int64_t i) const {
    Value y[N];
    load(i, cuda::position_of(i, a.cols).column, y);
    store(i, y);
  }
  template <int N>
  __device__ void load(int64_t at, int64_t column, Value (&y)[N]) const {
    Value z[N][A::kParts];
    load_parts<A>(a.z + A::kParts * (at - column), a.bias, a.cols, column, z);
    LMX_UNROLL
    for (int e = 0; e < N; ++e) y[e] = A::value(z[e]);
  }
  template <int N>
  __device__ void store(int64_t at, const Value (&y)[N]) const {
    S rounded[N];
    LMX_UNROLL
    for (int e = 0; e < N; ++e) rounded[e] = static_cast<S>(y[e]);
    cuda::put_elements(a.y + at, rounded);
  }
};

// The gradients of units, with sums of their columns or without.
template <class A, class S>
struct UnitGradients {
  using Value = Computed<S>;
  FeedForwardUnitsBackward<A, S> a;
  bool aligned() const {
    return a.cols % cuda::kQuad == 0 && cuda::aligned_quads(a.kept, a.dy, a.dz) && cuda::aligned_quads(a.bias);
  }
  __device__ void operator()(int64_t i) const { elements<1>(i); }
  __device__ void quad(int64_t i) const { elements<cuda::kQuad>(i); }
  template <int N>
  __device__ void elements(int64_t i) const {
    const auto [row, column] = cuda::position_of(i, a.cols);
    Value sums[A::kParts][N]{};
    add(row, column, sums);
  }
  template <int N>
  __device__ void add(int64_t row, int64_t column, Value (&sums)[A::kParts][N]) const {
    const int64_t first = A::kParts * row * a.cols;
    Value kept[N][A::kParts], dz[N][A::kParts];
    S dy[N];
    cuda::elements_at(a.dy + row * a.cols + column, dy);
    load_parts<A>(a.kept + first, a.bias, a.cols, column, kept);
    LMX_UNROLL
    for (int e = 0; e < N; ++e) A::differentiate(kept[e], static_cast<Value>(dy[e]) * a.scale, dz[e]);
    LMX_UNROLL
    for (int part = 0; part < A::kParts; ++part) {
      S rounded[N];
      LMX_UNROLL
      for (int e = 0; e < N; ++e) {
        sums[part][e] += dz[e][part];
        rounded[e] = static_cast<S>(dz[e][part]);
      }
      cuda::put_elements(a.dz + first + part * a.cols + column, rounded);
    }
  }
};

template <class A, class S>
void forward(Context& ctx, const FeedForwardUnits<A, S>& a) {
  const UnitElements<A, S> units{a};
  if constexpr (A::kKeepsUnits) {  // other units are not dropped
    if (a.mask.keep_scale != 1) return launch_masked(ctx, units);
  }
  cuda::launch_quads(ctx, a.kName, a.rows * a.cols, units);
}

template <class A, class S>
void backward(Context& ctx, const FeedForwardUnitsBackward<A, S>& a) {
  using T = Computed<S>;
  const UnitGradients<A, S> units{a};
  if (!a.sums) return cuda::launch_quads(ctx, a.kName, a.rows * a.cols, units);
  cuda::sum_columns_of<T, A::kParts>(ctx, a.kName, {a.rows, a.cols, units.aligned()}, units,
                                     cuda::PutSums<T>{a.sums, a.beta, a.cols});
}

template <class A>
KernelAdder adder() {
  return KernelAdder(Device::Kind::cuda, forward<A, float>, forward<A, double>, forward<A, bfloat16>,
                     forward<A, float16>, backward<A, float>, backward<A, double>, backward<A, bfloat16>,
                     backward<A, float16>);
}

const KernelAdder adders[] = {adder<ReluUnits>(), adder<GeluTanhUnits>(), adder<SwigluUnits>()};

}  // namespace
}  // namespace lmx::ops
