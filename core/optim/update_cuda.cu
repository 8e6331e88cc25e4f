#include "lmx/cuda_launch.cuh"
#include "optim/update.h"

namespace lmx::optim {
namespace {

// Element i of the gradient. The values are in registers during the update, because the compiler cannot know that the
// arrays do not overlap.
template <int kSlots, class T, template <class> class Update>
struct UpdateElement {
  Update<T> u;
  T *first, *second;  // slots
  __device__ void operator()(int64_t i) const {
    const Elements<T>& e = u.of;
    const int64_t at = e.rows ? e.rows[i / e.width] * e.width + i % e.width : i;
    T p = e.param[at];
    if constexpr (kSlots == 0) {
      Update<T>::apply(p, e.grad[i], u);
    } else {
      T a = first[at];
      if constexpr (kSlots == 1) {
        Update<T>::apply(p, e.grad[i], a, u);
      } else {
        T b = second[at];
        Update<T>::apply(p, e.grad[i], a, b, u);
        second[at] = b;
      }
      first[at] = a;
    }
    e.param[at] = p;
  }
};

template <int kSlots, class T, template <class> class Update>
void update(Context& ctx, const Update<T>& u) {
  launch_each(ctx, u.kName, u.of.count * u.of.width, UpdateElement<kSlots, T, Update>{u, u.of.slot[0], u.of.slot[1]});
}

const KernelAdder adder(Device::Kind::cuda, update<0, float, SgdUpdate>, update<0, double, SgdUpdate>,
                        update<1, float, MomentumUpdate>, update<1, double, MomentumUpdate>,
                        update<1, float, AdagradUpdate>, update<1, double, AdagradUpdate>, update<2, float, AdamUpdate>,
                        update<2, double, AdamUpdate>);

}  // namespace
}  // namespace lmx::optim
