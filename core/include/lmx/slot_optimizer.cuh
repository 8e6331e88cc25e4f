// For *_cuda.cu: the kernels of lmx/slot_optimizer.h for CUDA. One launch updates many parameters.
#pragma once

#include <utility>

#include "lmx/cuda_launch.cuh"
#include "lmx/slot_optimizer.h"

namespace lmx::cuda {

// Element i of the gradient. The values are in registers during the update, because the compiler cannot know that the
// arrays do not overlap.
template <class T, template <class> class Update>
struct UpdateElement {
  Update<T> a;
  LMX_HD int64_t count() const { return a.of.count * a.of.width; }
  __device__ bool start() { return optim::read_scale(a); }
  __device__ void operator()(int64_t i) const { run(i, std::make_index_sequence<optim::kSlotsOf<Update<T>>>()); }

 private:
  template <size_t... s>
  __device__ void run(int64_t i, std::index_sequence<s...>) const {
    const auto& e = a.of;
    int64_t at = i;
    if (e.rows) {
      const auto [row, column] = position_of(i, e.width);
      at = e.rows[row] * e.width + column;
    }
    T p = e.param[at], slots[sizeof...(s) + 1] = {e.slot[s][at]...};
    Update<T>::apply(p, e.grad[i], slots[s]..., a);
    ((e.slot[s][at] = slots[s]), ...);
    e.param[at] = p;
    if (e.copy.to) e.copy.store(at, p);
  }
};

template <class T, template <class> class Update>
void update(Context& ctx, const optim::UpdateAll<Update<T>, T>& all) {
  launch_together<UpdateElement<T, Update>>(ctx, all.kName, all.updates, all.count);
}

// Each Update has the element type as its only parameter.
template <template <class> class... Updates>
KernelAdder updates() {
  return KernelAdder(Device::Kind::cuda, update<float, Updates>..., update<double, Updates>...);
}

}  // namespace lmx::cuda
