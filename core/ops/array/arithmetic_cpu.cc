#include "ops/array/arithmetic.h"

#include "ops/common.h"

namespace lmx::ops {
namespace {

template <class T>
LMX_SIMD void shift_kernel(const T* x, T* y, T constant, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] + constant;
}

template <class T>
void shift(Context&, const AddScalar<T>& a) {
  parallel_for(a.n, kGrain,
               [&](int64_t begin, int64_t end) { shift_kernel<T>(a.x + begin, a.y + begin, a.constant, end - begin); });
}

const KernelAdder adder(Device::Kind::cpu, shift<float>, shift<double>);

}  // namespace
}  // namespace lmx::ops
