#include "lmx/parallel.h"
#include "mlstm_kernels.h"

namespace lmx::mlstm {
namespace {

constexpr int64_t kGrain = 1 << 14;

template <class T>
LMX_SIMD void product(const T* __restrict a, const T* __restrict b, T* __restrict m, int64_t n) {
  for (int64_t i = 0; i < n; ++i) m[i] = a[i] * b[i];
}

template <class T>
LMX_SIMD void product_backward(T* __restrict a, T* __restrict b, const T* __restrict dm, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T was = a[i];
    a[i] = dm[i] * b[i];
    b[i] = dm[i] * was;
  }
}

template <class T>
void forward(Context&, const ProductStep<T>& s) {
  parallel_for(s.n, kGrain,
               [&](int64_t begin, int64_t end) { product(s.a + begin, s.b + begin, s.m + begin, end - begin); });
}

template <class T>
void backward(Context&, const ProductBackwardStep<T>& s) {
  parallel_for(s.n, kGrain, [&](int64_t begin, int64_t end) {
    product_backward(s.a + begin, s.b + begin, s.dm + begin, end - begin);
  });
}

const KernelAdder adder(Device::Kind::cpu, forward<float>, forward<double>, backward<float>, backward<double>);

}  // namespace
}  // namespace lmx::mlstm
