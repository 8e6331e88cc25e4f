#include "backend/cuda/quads.cuh"
#include "ops/array/arithmetic.h"
#include "ops/array/elementwise.h"

namespace lmx::ops {
namespace {

template <class F, class T>
struct ForwardElement {
  Elementwise<F, T> a;
  __device__ void operator()(int64_t i) const {
    const T y = a.value(a.x[i]);
    a.y[i] = y;
    if constexpr (kFeedsProducts<F>) {
      if (a.operand.to) a.operand.store(i, y);
    }
  }
  bool aligned() const { return cuda::aligned_quads(a.x, a.y) && cuda::aligned_quads(a.operand); }
  __device__ void quad(int64_t i) const {
    cuda::Quad<T> y = cuda::quad_at(a.x + i);
    for (T& v : y.v) v = a.value(v);
    cuda::put_quad(a.y + i, y);
    if constexpr (kFeedsProducts<F>) {
      if (a.operand.to) cuda::put_quad(a.operand, i, y);
    }
  }
};
template <class F, class T>
struct BackwardElement {
  ElementwiseBackward<F, T> a;
  __device__ void operator()(int64_t i) const {
    const T dx = a.slope(a.x[i], a.y[i]) * a.dy[i];
    a.dx[i] = dx;
    if constexpr (kFeedsProducts<F>) {
      if (a.operand.to) a.operand.store(i, dx);
    }
  }
  bool aligned() const { return cuda::aligned_quads(a.x, a.y, a.dy, a.dx) && cuda::aligned_quads(a.operand); }
  __device__ void quad(int64_t i) const {
    const cuda::Quad<T> x = cuda::quad_at(a.x + i), y = cuda::quad_at(a.y + i), dy = cuda::quad_at(a.dy + i);
    cuda::Quad<T> dx;
    for (int e = 0; e < cuda::kQuad; ++e) dx.v[e] = a.slope(x.v[e], y.v[e]) * dy.v[e];
    cuda::put_quad(a.dx + i, dx);
    if constexpr (kFeedsProducts<F>) {
      if (a.operand.to) cuda::put_quad(a.operand, i, dx);
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
