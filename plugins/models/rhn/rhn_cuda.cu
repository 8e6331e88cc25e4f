// One thread an element (b, j): the same cell functors as the CPU's loops.
#include "lmx/error.h"
#include "rhn_cell.h"
#include "rhn_kernels.h"

namespace lmx::rhn {
namespace {

constexpr int kThreads = 256;

template <bool Coupled, class T>
__global__ void forward_kernel(ForwardStep<T> p) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= p.batch * p.cells) return;
  const int64_t row = e / p.cells, h = p.cells;
  forward_element<Coupled>(p.z + row * (Coupled ? 2 : 3) * h, p.bias, p.s[e], p.next + row * h, e % h, h,
                           p.transform_bias);
}

template <bool Coupled, class T>
__global__ void backward_kernel(BackwardStep<T> p) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= p.batch * p.cells) return;
  const int64_t row = e / p.cells, h = p.cells;
  backward_element<Coupled>(p.z + row * (Coupled ? 2 : 3) * h, p.s[e], p.ds + row * h, e % h, h);
}

void check_launch(const char* name) {
  const cudaError_t code = cudaGetLastError();
  if (code != cudaSuccess) throw RunError(str("[", name, "] launch failed: ", cudaGetErrorString(code)));
}

unsigned blocks(int64_t elements) { return static_cast<unsigned>((elements + kThreads - 1) / kThreads); }

template <class T>
void forward(const ForwardStep<T>& p) {
  if (p.batch * p.cells == 0) return;
  if (p.coupled)
    forward_kernel<true, T><<<blocks(p.batch * p.cells), kThreads>>>(p);
  else
    forward_kernel<false, T><<<blocks(p.batch * p.cells), kThreads>>>(p);
  check_launch("rhn_forward");
}

template <class T>
void backward(const BackwardStep<T>& p) {
  if (p.batch * p.cells == 0) return;
  if (p.coupled)
    backward_kernel<true, T><<<blocks(p.batch * p.cells), kThreads>>>(p);
  else
    backward_kernel<false, T><<<blocks(p.batch * p.cells), kThreads>>>(p);
  check_launch("rhn_backward");
}

}  // namespace
}  // namespace lmx::rhn

extern "C" LMX_API void lmx_plugin_cuda() {
  using namespace lmx::rhn;
  add_kernels<float>(lmx::Device::Kind::cuda, forward<float>, backward<float>);
  add_kernels<double>(lmx::Device::Kind::cuda, forward<double>, backward<double>);
}
