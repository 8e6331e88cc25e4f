// Adds the pointwise kernels of lmx/pointwise.h for CUDA: `const KernelAdder adder = cuda::pointwise<Step, ...>();`. A
// thread computes four neighbouring elements where the addresses allow it, or two if the step is small.
#pragma once

#include "lmx/quads.cuh"

namespace lmx::cuda {

template <int N>
struct Lanes {
  static constexpr int kCount = N;
  template <class S>
  __device__ Some<Computed<S>, N> load(const S* p) const {
    S stored[N];
    elements_at<N>(p, stored);
    Some<Computed<S>, N> some;
    for (int e = 0; e < N; ++e) some[e] = static_cast<Computed<S>>(stored[e]);
    return some;
  }
  template <class S>
  __device__ void store(S* p, const Some<Computed<S>, N>& some) const {
    S stored[N];
    for (int e = 0; e < N; ++e) stored[e] = static_cast<S>(some[e]);
    put_elements<N>(p, stored);
  }
  template <class T>
  __device__ void store(const OperandTarget& operand, int64_t i, const Some<T, N>& some) const {
    if (operand.to) put_elements<N>(operand, i, some.v);
  }
};

// Reads and writes nothing, and notes whether quads can begin at all addresses that a step uses.
struct Addresses {
  static constexpr int kCount = 1;
  bool aligned = true;
  template <class S>
  LMX_HD Some<Computed<S>, 1> load(const S* p) {
    aligned &= aligned_quads(p);
    return {};
  }
  template <class S>
  LMX_HD void store(S* p, const Some<Computed<S>, 1>&) {
    aligned &= aligned_quads(p);
  }
  template <class T>
  LMX_HD void store(const OperandTarget& operand, int64_t, const Some<T, 1>&) {
    aligned &= aligned_quads(operand);
  }
};

template <class Step>
struct PointwiseElement {
  Step step;
  bool aligned() const {
    Addresses addresses;
    step.apply(addresses, 0, 0);
    return addresses.aligned && step.cells % kQuad == 0;
  }
  __device__ void operator()(int64_t i) const { apply<1>(i); }
  __device__ void quad(int64_t i) const { apply<kQuad>(i); }
  template <int N>
  __device__ void apply(int64_t i) const {
    const Position p = position_of(i, step.cells);
    Lanes<N> lanes;
    step.apply(lanes, p.row, p.column);
  }
};

template <class Step>
__global__ void pairs_kernel(int64_t pairs, PointwiseElement<Step> element) {
  wait_for_previous();
  const int64_t p = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (p < pairs) element.template apply<2>(p * 2);
}

template <class Step>
void pointwise_rows(Context& ctx, const Step& step) {
  // A step whose quads do not fill a large GPU takes as long as it waits for memory, so that twice the threads are
  // faster: on an H200 a layer of an RHN of 1,792 cells and 128 rows takes 7.95 microseconds in place of 8.18.
  constexpr int64_t kFewQuads = int64_t{1} << 16;
  const PointwiseElement<Step> element{step};
  const int64_t n = step.batch * step.cells;
  if (n == 0 || n / kQuad >= kFewQuads || !element.aligned()) return launch_quads(ctx, Step::kName, n, element);
  launch(ctx, Step::kName, {blocks_of((n / 2 + kThreads - 1) / kThreads)}, pairs_kernel<Step>, n / 2, element);
}

template <template <class> class... Steps>
KernelAdder pointwise() {
  return KernelAdder(Device::Kind::cuda, pointwise_rows<Steps<float>>..., pointwise_rows<Steps<double>>...);
}
// Steps of a value type and a kept type (lmx/operand.h).
template <template <class, class> class... Steps>
KernelAdder pointwise() {
  return KernelAdder(Device::Kind::cuda, pointwise_rows<Steps<float, float>>...,
                     pointwise_rows<Steps<double, double>>..., pointwise_rows<Steps<float, bfloat16>>...,
                     pointwise_rows<Steps<float, float16>>...);
}

}  // namespace lmx::cuda
