// For *_cuda.cu: the kernels of lmx/slot_optimizer.h for CUDA. One launch updates many parameters.
#pragma once

#include "lmx/cuda_launch.cuh"
#include "lmx/slot_optimizer.h"

namespace lmx::cuda {

constexpr int64_t kUpdatesOfBlock = 4 * kThreads;  // elements
constexpr size_t kArgumentBytes = 4096;            // of a kernel, on every device

// The updates of one launch. Block b serves the last update whose first block is not after b.
template <class Update>
struct UpdateLaunch {
  static constexpr size_t kMost = (kArgumentBytes - sizeof(int64_t)) / (sizeof(Update) + sizeof(uint32_t)) - 1;
  Update updates[kMost];
  uint32_t first_block[kMost];
  int32_t count;
};

// Element i of the gradient. The values are in registers during the update, because the compiler cannot know that the
// arrays do not overlap.
template <class T, template <class> class Update, size_t... s>
__device__ void update_element(const Update<T>& u, int64_t i, std::index_sequence<s...>) {
  const auto& e = u.of;
  const int64_t at = e.rows ? e.rows[i / e.width] * e.width + i % e.width : i;
  T p = e.param[at], slots[sizeof...(s) + 1] = {e.slot[s][at]...};
  Update<T>::apply(p, e.grad[i], slots[s]..., u);
  ((e.slot[s][at] = slots[s]), ...);
  e.param[at] = p;
}

template <class T, template <class> class Update>
__global__ void update_elements(UpdateLaunch<Update<T>> l) {
  const int64_t k = range_of(blockIdx.x, l.count, [&l](int64_t i) { return l.first_block[i]; });
  const Update<T> u = l.updates[k];
  const int64_t n = u.of.count * u.of.width, begin = (blockIdx.x - int64_t{l.first_block[k]}) * kUpdatesOfBlock;
  const int64_t end = begin + kUpdatesOfBlock < n ? begin + kUpdatesOfBlock : n;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    update_element<T, Update>(u, i, std::make_index_sequence<optim::kSlotsOf<Update<T>>>());
}

template <class T, template <class> class Update>
void update(Context& ctx, const optim::UpdateAll<Update<T>, T>& a) {
  using Some = UpdateLaunch<Update<T>>;
  static_assert(sizeof(Some) <= kArgumentBytes);
  for (int64_t done = 0; done < a.count;) {
    Some some{};
    uint32_t blocks = 0;
    while (done < a.count && some.count < static_cast<int32_t>(Some::kMost)) {
      const Update<T>& u = a.updates[done++];
      some.updates[some.count] = u;
      some.first_block[some.count++] = blocks;
      blocks += static_cast<uint32_t>((u.of.count * u.of.width + kUpdatesOfBlock - 1) / kUpdatesOfBlock);
    }
    if (blocks > 0) launch(ctx, a.kName, {dim3(blocks)}, update_elements<T, Update>, some);
  }
}

// Each Update has the element type as its only parameter.
template <template <class> class... Updates>
KernelAdder updates() {
  return KernelAdder(Device::Kind::cuda, update<float, Updates>..., update<double, Updates>...);
}

}  // namespace lmx::cuda
