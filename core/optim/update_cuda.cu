#include "backend/cuda/parts.cuh"
#include "optim/update.h"

namespace lmx::optim {
namespace {

constexpr int64_t kPerBlock = 4 * cuda::kThreads;  // elements
constexpr size_t kArgumentBytes = 4096;            // of a kernel, on every device

// The updates of one launch. Block b serves the last update whose first block is not after b.
template <class Update>
struct Launch {
  static constexpr size_t kMost = (kArgumentBytes - sizeof(int64_t)) / (sizeof(Update) + sizeof(uint32_t)) - 1;
  Update updates[kMost];
  uint32_t first_block[kMost];
  int32_t count;
};

// Element i of the gradient. The values are in registers during the update, because the compiler cannot know that the
// arrays do not overlap.
template <int kSlots, class T, template <class> class Update>
__device__ void update_element(const Update<T>& u, int64_t i) {
  const Elements<T>& e = u.of;
  const int64_t at = e.rows ? e.rows[i / e.width] * e.width + i % e.width : i;
  T p = e.param[at];
  if constexpr (kSlots == 0) {
    Update<T>::apply(p, e.grad[i], u);
  } else {
    T* first = e.slot[0];
    T a = first[at];
    if constexpr (kSlots == 1) {
      Update<T>::apply(p, e.grad[i], a, u);
    } else {
      T* second = e.slot[1];
      T b = second[at];
      Update<T>::apply(p, e.grad[i], a, b, u);
      second[at] = b;
    }
    first[at] = a;
  }
  e.param[at] = p;
}

template <int kSlots, class T, template <class> class Update>
__global__ void update_elements(Launch<Update<T>> l) {
  const int64_t k = cuda::range_of(blockIdx.x, l.count, [&l](int64_t i) { return l.first_block[i]; });
  const Update<T> u = l.updates[k];
  const int64_t n = u.of.count * u.of.width, begin = (blockIdx.x - int64_t{l.first_block[k]}) * kPerBlock;
  const int64_t end = begin + kPerBlock < n ? begin + kPerBlock : n;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) update_element<kSlots, T, Update>(u, i);
}

template <int kSlots, class T, template <class> class Update>
void update(Context& ctx, const UpdateAll<Update<T>, T>& a) {
  using Some = Launch<Update<T>>;
  static_assert(sizeof(Some) <= kArgumentBytes);
  for (int64_t done = 0; done < a.count;) {
    Some some{};
    uint32_t blocks = 0;
    while (done < a.count && some.count < static_cast<int32_t>(Some::kMost)) {
      const Update<T>& u = a.updates[done++];
      some.updates[some.count] = u;
      some.first_block[some.count++] = blocks;
      blocks += static_cast<uint32_t>((u.of.count * u.of.width + kPerBlock - 1) / kPerBlock);
    }
    if (blocks > 0) cuda::launch(ctx, a.kName, {dim3(blocks)}, update_elements<kSlots, T, Update>, some);
  }
}

const KernelAdder adder(Device::Kind::cuda, update<0, float, SgdUpdate>, update<0, double, SgdUpdate>,
                        update<1, float, MomentumUpdate>, update<1, double, MomentumUpdate>,
                        update<1, float, AdagradUpdate>, update<1, double, AdagradUpdate>, update<2, float, AdamUpdate>,
                        update<2, double, AdamUpdate>);

}  // namespace
}  // namespace lmx::optim
