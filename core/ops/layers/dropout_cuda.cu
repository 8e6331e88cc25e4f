#include "ops/layers/dropout.h"

#include "ops/layers/masked.cuh"

namespace lmx::ops {
namespace {

template <class T>
struct DropoutElements {
  using Value = T;
  Dropout<T> a;
  bool aligned() const { return cuda::aligned_quads(a.x, a.y) && cuda::aligned_quads(a.operand); }
  template <int N>
  __device__ void load(int64_t at, int64_t, T (&x)[N]) const {
    cuda::elements_at(a.x + at, x);
  }
  template <int N>
  __device__ void store(int64_t at, const T (&y)[N]) const {
    cuda::put_elements(a.y + at, y);
    if (a.operand.to) cuda::put_elements(a.operand, at, y);
  }
};

template <class T>
void forward(Context& ctx, const Dropout<T>& a) {
  launch_masked(ctx, DropoutElements<T>{a});
}

const KernelAdder adder(Device::Kind::cuda, forward<float>, forward<double>);

}  // namespace
}  // namespace lmx::ops
