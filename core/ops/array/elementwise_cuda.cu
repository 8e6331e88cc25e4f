#include "lmx/cuda_launch.cuh"
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
};
template <class T>
struct ShiftElement {
  AddScalar<T> a;
  __device__ void operator()(int64_t i) const { a.y[i] = a.x[i] + a.constant; }
};

template <class F>
KernelAdder add() {
  return KernelAdder(Device::Kind::cuda, cuda::each<ForwardElement<F, float>>, cuda::each<ForwardElement<F, double>>,
                     cuda::each<BackwardElement<F, float>>, cuda::each<BackwardElement<F, double>>);
}

const KernelAdder adders[] = {add<Tanh>(), add<Sigmoid>(), add<Relu>(), add<Exp>(),  add<Log>(),     add<Sqrt>(),
                              add<Pow>(),  add<Square>(),  add<Silu>(), add<Gelu>(), add<GeluTanh>()};
const KernelAdder shifts = cuda::each_kernels<ShiftElement>();

}  // namespace
}  // namespace lmx::ops
