// The kernels that several losses use.
#include "ops/losses/output_layer.h"

#include "backend/cuda/reduce.cuh"

namespace lmx::ops {
namespace {

constexpr int kSumThreads = 1024;

// One block: a loss has some thousand rows.
template <class T>
__global__ void __launch_bounds__(kSumThreads) sum_losses(SumOfLosses<T> a) {
  cuda::wait_for_previous();
  double nats = 0, loss = 0;
  for (int64_t i = threadIdx.x; i < a.n; i += kSumThreads) {
    const double weight = weight_of(a.weights, i);
    nats += weight * a.nll[i];
    if (a.smoothed) loss += weight * a.smoothed[i];
  }
  nats = cuda::block_sum(nats, cuda::shared<double>());
  loss = a.smoothed ? cuda::block_sum(loss, cuda::shared<double>()) : nats;
  if (threadIdx.x != 0) return;
  *a.nats = nats;
  *a.loss = static_cast<T>(loss);
}

// Each thread computes the factor once, for many elements.
template <class T>
__global__ void __launch_bounds__(cuda::kThreads) scale_elements(ScaleBySeed<T> a) {
  cuda::wait_for_previous();
  const double factor = a.factor();
  if (factor == 1.0) return;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * cuda::kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * cuda::kThreads + threadIdx.x; i < a.n; i += stride)
    a.x[i] *= static_cast<T>(factor);
}

template <class T>
void sum(Context& ctx, const SumOfLosses<T>& a) {
  cuda::launch(ctx, a.kName, {1, kSumThreads, cuda::kWarpLanes * sizeof(double)}, sum_losses<T>, a);
}
template <class T>
void scale(Context& ctx, const ScaleBySeed<T>& a) {
  constexpr int64_t kMostBlocks = 4096;
  if (a.n == 0) return;
  const int64_t blocks = std::min(kMostBlocks, (a.n + cuda::kThreads - 1) / cuda::kThreads);
  cuda::launch(ctx, a.kName, {cuda::blocks_of(blocks)}, scale_elements<T>, a);
}

const KernelAdder adder(Device::Kind::cuda, sum<float>, sum<double>, scale<float>, scale<double>);

}  // namespace
}  // namespace lmx::ops
