#include "ops/feed_forward/feed_forward.h"

#include "backend/cuda/columns.cuh"
#include "ops/array/elementwise.h"
#include "ops/layers/masked.cuh"

namespace lmx::ops {
namespace {

template <class S>
struct UnitElements {
  using Value = Computed<S>;
  FeedForwardUnits<S> a;
  bool aligned() const { return cuda::aligned_quads(a.y) && cuda::aligned_quads(a.bias); }
  template <int N>
  __device__ void load(int64_t at, int64_t column, Value (&y)[N]) const {
    S z[N];
    cuda::elements_at(a.y + at, z);
    float bias[N]{};
    if (a.bias) cuda::elements_at(a.bias + column, bias);
    LMX_UNROLL
    for (int e = 0; e < N; ++e) {
      const Value value = static_cast<Value>(z[e]);
      y[e] = Relu().value(a.bias ? value + static_cast<Value>(bias[e]) : value);
    }
  }
  template <int N>
  __device__ void store(int64_t at, const Value (&y)[N]) const {
    S rounded[N];
    LMX_UNROLL
    for (int e = 0; e < N; ++e) rounded[e] = static_cast<S>(y[e]);
    cuda::put_elements(a.y + at, rounded);
  }
};

template <class S>
struct UnitSlopes {
  using Value = Computed<S>;
  FeedForwardUnitsBackward<S> a;
  template <int N>
  __device__ void add(int64_t row, int64_t column, Value (&sums)[1][N]) const {
    const int64_t at = row * a.cols + column;
    S y[N], dy[N];
    cuda::elements_at(a.y + at, y);
    cuda::elements_at(a.dy + at, dy);
    LMX_UNROLL
    for (int e = 0; e < N; ++e) {
      const Value value = static_cast<Value>(y[e]);
      const Value dz = Relu().slope(value, value) * (static_cast<Value>(dy[e]) * a.scale);
      dy[e] = static_cast<S>(dz);
      sums[0][e] += dz;
    }
    cuda::put_elements(a.dy + at, dy);
  }
};

template <class S>
void forward(Context& ctx, const FeedForwardUnits<S>& a) {
  launch_masked(ctx, UnitElements<S>{a});
}

template <class S>
void backward(Context& ctx, const FeedForwardUnitsBackward<S>& a) {
  using T = Computed<S>;
  cuda::sum_columns_of<T, 1>(ctx, a.kName, {a.rows, a.cols, cuda::aligned_quads(a.y, a.dy)}, UnitSlopes<S>{a},
                             cuda::PutSums<T>{a.sums, a.beta});
}

const KernelAdder adder(Device::Kind::cuda, forward<float>, forward<double>, forward<bfloat16>, forward<float16>,
                        backward<float>, backward<double>, backward<bfloat16>, backward<float16>);

}  // namespace
}  // namespace lmx::ops
