// One thread an element (b, j): the same cell functors as the CPU's loops.
#include "lmx/error.h"
#include "lstm_cell.h"
#include "lstm_kernels.h"

namespace lmx::lstm {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void forward_kernel(ForwardStep<T> s) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= s.batch * s.cells) return;
  const int64_t row = e / s.cells, h = s.cells;
  forward_element(s.z + row * 4 * h, s.bias, s.c[e], s.c_next + row * h, s.m + row * h, e % h, h, s.forget_bias);
}

template <class T>
__global__ void backward_kernel(BackwardStep<T> s) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= s.batch * s.cells) return;
  const int64_t row = e / s.cells, h = s.cells;
  backward_element(s.z + row * 4 * h, s.c[e], s.c_next[e], s.dm[e], s.dc + row * h, e % h, h);
}

void check_launch(const char* name) {
  const cudaError_t code = cudaGetLastError();
  if (code != cudaSuccess) throw RunError(str("[", name, "] launch failed: ", cudaGetErrorString(code)));
}

unsigned blocks(int64_t elements) { return static_cast<unsigned>((elements + kThreads - 1) / kThreads); }

template <class T>
void forward(const ForwardStep<T>& s) {
  if (s.batch * s.cells == 0) return;
  forward_kernel<T><<<blocks(s.batch * s.cells), kThreads>>>(s);
  check_launch("lstm_forward");
}

template <class T>
void backward(const BackwardStep<T>& s) {
  if (s.batch * s.cells == 0) return;
  backward_kernel<T><<<blocks(s.batch * s.cells), kThreads>>>(s);
  check_launch("lstm_backward");
}

}  // namespace
}  // namespace lmx::lstm

extern "C" LMX_API void lmx_plugin_cuda() {
  using namespace lmx::lstm;
  add_kernels<float>(lmx::Device::Kind::cuda, forward<float>, backward<float>);
  add_kernels<double>(lmx::Device::Kind::cuda, forward<double>, backward<double>);
}
