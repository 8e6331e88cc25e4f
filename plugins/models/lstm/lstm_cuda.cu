// One thread an element (b, j): the same cell functors as the CPU's loops.
#include "lmx/error.h"
#include "lmx/kernels.h"
#include "lstm_cell.h"
#include "lstm_kernels.h"

namespace lmx::lstm {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void forward_kernel(ForwardStep<T> s) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= s.batch * s.cells) return;
  const int64_t row = e / s.cells, j = e % s.cells, h = s.cells;
  T* z = s.z + row * 4 * h;
  const Gates<T> pre{z[j] + s.bias[j], z[h + j] + s.bias[h + j] + s.forget_bias, z[2 * h + j] + s.bias[2 * h + j],
                     z[3 * h + j] + s.bias[3 * h + j]};
  const CellOut<T> out = cell_forward(pre, s.c[e]);
  z[j] = out.gates.i;
  z[h + j] = out.gates.f;
  z[2 * h + j] = out.gates.g;
  z[3 * h + j] = out.gates.o;
  s.c_next[e] = out.c;
  s.m[e] = out.m;
}

template <class T>
__global__ void backward_kernel(BackwardStep<T> s) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= s.batch * s.cells) return;
  const int64_t row = e / s.cells, j = e % s.cells, h = s.cells;
  T* z = s.z + row * 4 * h;
  const CellGrad<T> g = cell_backward<T>({z[j], z[h + j], z[2 * h + j], z[3 * h + j]}, s.c[e], s.c_next[e], s.dm[e], s.dc[e]);
  z[j] = g.z.i;
  z[h + j] = g.z.f;
  z[2 * h + j] = g.z.g;
  z[3 * h + j] = g.z.o;
  s.dc[e] = g.c;
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

template <class T>
void add(DType type) {
  const ForwardKernel<T> f = forward<T>;
  const BackwardKernel<T> b = backward<T>;
  add_kernel("lstm_forward", Device::Kind::cuda, type, reinterpret_cast<AnyKernel>(f));
  add_kernel("lstm_backward", Device::Kind::cuda, type, reinterpret_cast<AnyKernel>(b));
}

}  // namespace
}  // namespace lmx::lstm

extern "C" LMX_API void lmx_plugin_cuda() {
  lmx::lstm::add<float>(lmx::DType::f32);
  lmx::lstm::add<double>(lmx::DType::f64);
}
