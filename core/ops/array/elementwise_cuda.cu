#include "lmx/quads.cuh"
#include "ops/array/arithmetic.h"
#include "ops/array/elementwise.h"

namespace lmx::ops {
namespace {

template <class F, class T>
struct ForwardElement {
  Elementwise<F, T> a;
  bool aligned() const { return cuda::aligned_quads(a.x, a.y) && cuda::aligned_quads(a.operand); }
  __device__ void operator()(int64_t i) const { elements<1>(i); }
  __device__ void quad(int64_t i) const { elements<cuda::kQuad>(i); }
  template <int N>
  __device__ void elements(int64_t i) const {
    T y[N];
    cuda::elements_at(a.x + i, y);
    for (T& v : y) v = a.value(v);
    cuda::put_elements(a.y + i, y);
    if constexpr (kFeedsProducts<F>) {
      if (a.operand.to) cuda::put_elements(a.operand, i, y);
    }
  }
};
template <class F, class T>
struct BackwardElement {
  ElementwiseBackward<F, T> a;
  bool aligned() const { return cuda::aligned_quads(a.x, a.y, a.dy, a.dx) && cuda::aligned_quads(a.operand); }
  __device__ void operator()(int64_t i) const { elements<1>(i); }
  __device__ void quad(int64_t i) const { elements<cuda::kQuad>(i); }
  template <int N>
  __device__ void elements(int64_t i) const {
    T x[N], y[N], dy[N], dx[N];
    cuda::elements_at(a.x + i, x);
    cuda::elements_at(a.y + i, y);
    cuda::elements_at(a.dy + i, dy);
    for (int e = 0; e < N; ++e) dx[e] = a.slope(x[e], y[e]) * dy[e];
    cuda::put_elements(a.dx + i, dx);
    if constexpr (kFeedsProducts<F>) {
      if (a.operand.to) cuda::put_elements(a.operand, i, dx);
    }
  }
};
template <class T>
struct ShiftElement {
  AddScalar<T> a;
  __device__ void operator()(int64_t i) const { a.y[i] = a.x[i] + a.constant; }
};

template <class F>
KernelAdder add() {
  return KernelAdder(Device::Kind::cuda, cuda::each_quad<ForwardElement<F, float>>,
                     cuda::each_quad<ForwardElement<F, double>>, cuda::each_quad<BackwardElement<F, float>>,
                     cuda::each_quad<BackwardElement<F, double>>);
}

const KernelAdder adders[] = {add<Tanh>(), add<Sigmoid>(), add<Relu>(), add<Exp>(),  add<Log>(),     add<Sqrt>(),
                              add<Pow>(),  add<Square>(),  add<Silu>(), add<Gelu>(), add<GeluTanh>()};
const KernelAdder shifts = cuda::each_kernels<ShiftElement>();

}  // namespace
}  // namespace lmx::ops
