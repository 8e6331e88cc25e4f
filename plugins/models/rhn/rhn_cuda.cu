// One thread for each element (b, j), with the same cell functions as the CPU's loops.
#include "lmx/cuda_launch.cuh"
#include "rhn_cell.h"
#include "rhn_kernels.h"

namespace lmx::rhn {
namespace {

template <bool Coupled, class T>
struct ForwardElement {
  ForwardStep<T> p;
  __device__ void operator()(int64_t e) const {
    const int64_t row = e / p.cells, h = p.cells;
    forward_element<Coupled>(p.z + row * (Coupled ? 2 : 3) * h, p.bias, p.s[e], p.next + row * h, e % h, h,
                             p.transform_bias);
  }
};

template <bool Coupled, class T>
struct BackwardElement {
  BackwardStep<T> p;
  __device__ void operator()(int64_t e) const {
    const int64_t row = e / p.cells, h = p.cells;
    backward_element<Coupled>(p.z + row * (Coupled ? 2 : 3) * h, p.s[e], p.ds + row * h, e % h, h);
  }
};

template <class T>
void forward(Context&, const ForwardStep<T>& p) {
  if (p.coupled)
    launch_each("rhn_forward", p.batch * p.cells, ForwardElement<true, T>{p});
  else
    launch_each("rhn_forward", p.batch * p.cells, ForwardElement<false, T>{p});
}

template <class T>
void backward(Context&, const BackwardStep<T>& p) {
  if (p.coupled)
    launch_each("rhn_backward", p.batch * p.cells, BackwardElement<true, T>{p});
  else
    launch_each("rhn_backward", p.batch * p.cells, BackwardElement<false, T>{p});
}

const KernelAdder adder(Device::Kind::cuda, forward<float>, forward<double>, backward<float>, backward<double>);

}  // namespace
}  // namespace lmx::rhn
