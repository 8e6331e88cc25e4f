// One thread an element (b, j): the same cell functors as the CPU's loops.
#include "cuda/cuda_check.h"
#include "cuda/cuda_kernels.h"
#include "lmx/lstm_cell.h"
#include "ops/lstm_cell.h"

namespace lmx::lstm {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void forward_kernel(LstmForwardStep<T> s) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= s.batch * s.cells) return;
  const int64_t row = e / s.cells, h = s.cells;
  forward_element(s.z + row * 4 * h, s.bias, s.c[e], s.c_next + row * h, s.m + row * h, e % h, h, s.forget_bias);
}

template <class T>
__global__ void backward_kernel(LstmBackwardStep<T> s) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= s.batch * s.cells) return;
  const int64_t row = e / s.cells, h = s.cells;
  backward_element(s.z + row * 4 * h, s.c[e], s.c_next[e], s.dm[e], s.dc + row * h, e % h, h);
}

unsigned blocks(int64_t elements) { return static_cast<unsigned>((elements + kThreads - 1) / kThreads); }

template <class T>
void forward(const LstmForwardStep<T>& s) {
  if (s.batch * s.cells == 0) return;
  forward_kernel<T><<<blocks(s.batch * s.cells), kThreads>>>(s);
  LMX_CUDA_CHECK(cudaGetLastError());
}

template <class T>
void backward(const LstmBackwardStep<T>& s) {
  if (s.batch * s.cells == 0) return;
  backward_kernel<T><<<blocks(s.batch * s.cells), kThreads>>>(s);
  LMX_CUDA_CHECK(cudaGetLastError());
}

template <class T>
void add() {
  add_kernel("lstm_forward", Device::Kind::cuda, dtype_of<T>, reinterpret_cast<AnyKernel>(forward<T>));
  add_kernel("lstm_backward", Device::Kind::cuda, dtype_of<T>, reinterpret_cast<AnyKernel>(backward<T>));
}

}  // namespace
}  // namespace lmx::lstm

void lmx::add_cuda_lstm() {
  lstm::add<float>();
  lstm::add<double>();
}
