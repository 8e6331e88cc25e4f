#include "optim/update.h"

#include <algorithm>

#include "lmx/parallel.h"

namespace lmx::optim {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements per thread, at least

// The loops are written for each number of state tensors, because the compiler needs named pointers that do not alias.
template <class T, class Update>
LMX_SIMD void run(T* __restrict p, const T* __restrict g, const Update& given, int64_t n) {
  const Update c = given;
  for (int64_t i = 0; i < n; ++i) Update::apply(p[i], g[i], c);
}
template <class T, class Update>
LMX_SIMD void run(T* __restrict p, const T* __restrict g, T* __restrict a, const Update& given, int64_t n) {
  const Update c = given;
  for (int64_t i = 0; i < n; ++i) Update::apply(p[i], g[i], a[i], c);
}
template <class T, class Update>
LMX_SIMD void run(T* __restrict p, const T* __restrict g, T* __restrict a, T* __restrict b, const Update& given,
                  int64_t n) {
  const Update c = given;
  for (int64_t i = 0; i < n; ++i) Update::apply(p[i], g[i], a[i], b[i], c);
}

// Updates `n` elements from element `at` of the parameter and element `from` of the gradient.
template <int kSlots, class T, template <class> class Update>
void run_at(const Update<T>& u, int64_t at, int64_t from, int64_t n) {
  const Elements<T>& e = u.of;
  if constexpr (kSlots == 0) run<T, Update<T>>(e.param + at, e.grad + from, u, n);
  if constexpr (kSlots == 1) run<T, Update<T>>(e.param + at, e.grad + from, e.slot[0] + at, u, n);
  if constexpr (kSlots == 2) run<T, Update<T>>(e.param + at, e.grad + from, e.slot[0] + at, e.slot[1] + at, u, n);
}

template <int kSlots, class T, template <class> class Update>
void update(Context&, const Update<T>& u) {
  const Elements<T>& e = u.of;
  parallel_for(e.count, std::max<int64_t>(1, kGrain / e.width), [&](int64_t begin, int64_t end) {
    if (!e.rows) return run_at<kSlots, T, Update>(u, begin, begin, end - begin);
    for (int64_t i = begin; i < end; ++i) run_at<kSlots, T, Update>(u, e.rows[i] * e.width, i * e.width, e.width);
  });
}

const KernelAdder adder(Device::Kind::cpu, update<0, float, SgdUpdate>, update<0, double, SgdUpdate>,
                        update<1, float, MomentumUpdate>, update<1, double, MomentumUpdate>,
                        update<1, float, AdagradUpdate>, update<1, double, AdagradUpdate>, update<2, float, AdamUpdate>,
                        update<2, double, AdamUpdate>);

}  // namespace
}  // namespace lmx::optim
