#include "lmx/cuda_launch.cuh"
#include "ops/array/arithmetic.h"
#include "ops/array/elementwise.h"

namespace lmx::ops {
namespace {

template <class F, class T>
struct ForwardElement {
  Elementwise<F, T> a;
  __device__ void operator()(int64_t i) const { a.y[i] = a.f.value(a.x[i]); }
};
template <class F, class T>
struct BackwardElement {
  ElementwiseBackward<F, T> a;
  __device__ void operator()(int64_t i) const { a.dx[i] = a.f.slope(a.x[i], a.y[i]) * a.dy[i]; }
};
template <class T>
struct ShiftElement {
  AddScalar<T> a;
  __device__ void operator()(int64_t i) const { a.y[i] = a.x[i] + a.constant; }
};

template <class F, class T>
void apply(Context& ctx, const Elementwise<F, T>& a) {
  launch_each(ctx, a.kName, a.n, ForwardElement<F, T>{a});
}
template <class F, class T>
void apply_backward(Context& ctx, const ElementwiseBackward<F, T>& a) {
  launch_each(ctx, a.kName, a.n, BackwardElement<F, T>{a});
}
template <class T>
void shift(Context& ctx, const AddScalar<T>& a) {
  launch_each(ctx, a.kName, a.n, ShiftElement<T>{a});
}

template <class F>
KernelAdder add() {
  return KernelAdder(Device::Kind::cuda, apply<F, float>, apply<F, double>, apply_backward<F, float>,
                     apply_backward<F, double>);
}

const KernelAdder adders[] = {add<Tanh>(), add<Sigmoid>(), add<Relu>(), add<Exp>(),  add<Log>(),     add<Sqrt>(),
                              add<Pow>(),  add<Square>(),  add<Silu>(), add<Gelu>(), add<GeluTanh>()};
const KernelAdder shifts(Device::Kind::cuda, shift<float>, shift<double>);

}  // namespace
}  // namespace lmx::ops
