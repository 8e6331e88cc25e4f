// A plugin's CUDA kernel that uses only lmx's public headers.
#include "lmx/cuda_launch.cuh"
#include "lmx/kernels.h"

namespace {

struct Fill {
  float* out;
  float value;
  __device__ void operator()(int64_t i) const { out[i] = value; }
};

template <class T>
struct HelloFill {
  static constexpr const char* kName = "hello_fill";
  T* out;
  int64_t n;
  T value;
};

void fill(lmx::Context& ctx, const HelloFill<float>& a) {
  lmx::launch_each(ctx, a.kName, a.n, Fill{a.out, a.value});
}

const lmx::KernelAdder adder(lmx::Device::Kind::cuda, fill);

}  // namespace
