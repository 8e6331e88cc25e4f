// One thread an element.
#include "lmx/error.h"
#include "mlstm_kernels.h"

namespace lmx::mlstm {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void product_kernel(ProductStep<T> s) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < s.n) s.m[i] = s.a[i] * s.b[i];
}

template <class T>
__global__ void product_backward_kernel(ProductBackwardStep<T> s) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= s.n) return;
  const T was = s.a[i];
  s.a[i] = s.dm[i] * s.b[i];
  s.b[i] = s.dm[i] * was;
}

void check_launch(const char* name) {
  const cudaError_t code = cudaGetLastError();
  if (code != cudaSuccess) throw RunError(str("[", name, "] launch failed: ", cudaGetErrorString(code)));
}

unsigned blocks(int64_t elements) { return static_cast<unsigned>((elements + kThreads - 1) / kThreads); }

template <class T>
void forward(const ProductStep<T>& s) {
  if (s.n == 0) return;
  product_kernel<<<blocks(s.n), kThreads>>>(s);
  check_launch("mlstm_product");
}

template <class T>
void backward(const ProductBackwardStep<T>& s) {
  if (s.n == 0) return;
  product_backward_kernel<<<blocks(s.n), kThreads>>>(s);
  check_launch("mlstm_product_backward");
}

}  // namespace
}  // namespace lmx::mlstm

extern "C" LMX_API void lmx_plugin_cuda() {
  using namespace lmx::mlstm;
  add_kernels<float>(lmx::Device::Kind::cuda, forward<float>, backward<float>);
  add_kernels<double>(lmx::Device::Kind::cuda, forward<double>, backward<double>);
}
