// For *_cuda.cu: pointwise kernels, one thread for each element, on the default stream. nvcc declares CUDA's names.
// A kernel of lmx/pointwise.h is added with `const KernelAdder adder = cuda::pointwise<Step, ...>();`.
#pragma once

#include <cstdint>

#include "lmx/error.h"
#include "lmx/kernels.h"

namespace lmx {
namespace cuda {

constexpr int kThreads = 256;

template <class Element>
__global__ void each_kernel(int64_t n, Element element) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) element(i);
}

}  // namespace cuda

// Runs element(i) for every i of [0, n). Element: a struct of sizes and device pointers with `__device__ void
// operator()(int64_t i) const`. RunError `[op] launch failed: ...` if CUDA refuses the launch.
template <class Element>
void launch_each(const char* op, int64_t n, const Element& element) {
  if (n == 0) return;
  cuda::each_kernel<<<static_cast<unsigned>((n + cuda::kThreads - 1) / cuda::kThreads), cuda::kThreads>>>(n, element);
  const cudaError_t code = cudaGetLastError();
  if (code != cudaSuccess) throw RunError(str("[", op, "] launch failed: ", cudaGetErrorString(code)));
}

namespace cuda {

template <class Step>
struct PointwiseElement {
  Step step;
  __device__ void operator()(int64_t i) const { step(i / step.cells, i % step.cells); }
};

template <class Step>
void pointwise_rows(Context&, const Step& step) {
  launch_each(Step::kName, step.batch * step.cells, PointwiseElement<Step>{step});
}

template <template <class> class... Steps>
KernelAdder pointwise() {
  return KernelAdder(Device::Kind::cuda, pointwise_rows<Steps<float>>..., pointwise_rows<Steps<double>>...);
}

}  // namespace cuda

}  // namespace lmx
