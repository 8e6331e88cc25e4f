// A plugin's CUDA kernel that uses only lmx's public headers.
#include "lmx/cuda_launch.cuh"
#include "lmx/kernels.h"

namespace {

struct Fill {
  float* out;
  float value;
  __device__ void operator()(int64_t i) const { out[i] = value; }
};

void fill(float* out, int64_t n, float value) {
  lmx::launch_each("hello_fill", n, Fill{out, value});
}

}  // namespace

extern "C" LMX_API void lmx_plugin_cuda() {
  lmx::add_kernel("hello_fill", lmx::Device::Kind::cuda, lmx::DType::f32, reinterpret_cast<lmx::AnyKernel>(fill));
}
