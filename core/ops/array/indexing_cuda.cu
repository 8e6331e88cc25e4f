// Elements chosen by index, the largest of a dimension, and copies of parts of a dimension.
#include "lmx/cuda_launch.cuh"
#include "ops/array/indexing.h"
#include "ops/array/reduce.h"
#include "ops/array/shapes.h"

namespace lmx::ops {
namespace {

template <class T>
struct TakeElement {
  Take<T> a;
  __device__ void operator()(int64_t i) const { a.y[i] = a.places[i] < 0 ? T(0) : a.x[a.places[i]]; }
};
template <class T>
struct PutElement {
  Put<T> a;
  __device__ void operator()(int64_t i) const {
    if (a.places[i] >= 0) a.x[a.places[i]] = a.values ? a.values[i] : T(0);
  }
};
template <class T>
struct AddRunElement {
  AddAt<T> a;
  int64_t count() const { return a.runs; }
  __device__ void operator()(int64_t r) const {
    const int64_t place = a.places[a.order[a.starts[r]]];
    T sum = a.x[place];
    for (int64_t k = a.starts[r]; k < a.starts[r + 1]; ++k) sum += a.values[a.order[k]];
    a.x[place] = sum;
  }
};
template <class T>
struct MaxElement {
  Max<T> a;
  int64_t count() const { return a.columns; }
  __device__ void operator()(int64_t c) const {
    const auto [outer, inner] = cuda::position_of(c, a.inner);
    const T* column = a.x + outer * a.size * a.inner + inner;
    T best = column[0];
    int32_t place = 0;
    for (int64_t i = 1; i < a.size && best == best; ++i) {
      const T value = column[i * a.inner];
      if (value > best || value != value) {
        best = value;
        place = static_cast<int32_t>(i);
      }
    }
    a.y[c] = best;
    a.places[c] = place;
  }
};
template <class T>
struct MaxBackwardElement {
  MaxBackward<T> a;
  int64_t count() const { return a.columns; }
  __device__ void operator()(int64_t c) const {
    const auto [outer, inner] = cuda::position_of(c, a.inner);
    a.dx[(outer * a.size + a.places[c]) * a.inner + inner] = a.dy[c];
  }
};
template <class T>
struct CopyRunElement {
  CopyRuns<T> a;
  int64_t count() const { return a.runs * a.width; }
  __device__ void operator()(int64_t i) const {
    const auto [run, at] = cuda::position_of(i, a.width);
    a.to[run * a.to_stride + at] = a.from[run * a.from_stride + at];
  }
};

const KernelAdder adder =
    cuda::each_kernels<TakeElement, PutElement, AddRunElement, MaxElement, MaxBackwardElement, CopyRunElement>();

}  // namespace
}  // namespace lmx::ops
