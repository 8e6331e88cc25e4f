#include <cstring>

#include "autograd/gradient_sums.h"
#include "ops/common.h"

namespace lmx::ops {
namespace {

template <class T>
LMX_SIMD void scale_kernel(T* x, T factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

template <class T>
LMX_SIMD double sum_kernel(const T* x, int64_t n) {
  double s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; ++i) s += static_cast<double>(x[i]);
  return s;
}

template <class T>
void scale(Context&, const Scale<T>& a) {
  parallel_for(a.n, kGrain, [&](int64_t begin, int64_t end) { scale_kernel<T>(a.x + begin, a.factor, end - begin); });
}

// Threads share columns, not rows, so that the order of additions does not depend on their number.
template <class T>
void column_sums(Context&, const ColumnSums<T>& a) {
  parallel_for(a.cols, std::max<int64_t>(64, kGrain / std::max<int64_t>(a.rows, 1)), [&](int64_t begin, int64_t end) {
    if (a.beta == 0) std::fill(a.sums + begin, a.sums + end, T(0));
    for (int64_t r = 0; r < a.rows; ++r) add_row(a.sums + begin, a.x + r * a.cols + begin, end - begin);
  });
}

template <class T>
void gather_rows(Context&, const GatherRows<T>& a) {
  const size_t bytes = static_cast<size_t>(a.width) * sizeof(T);
  parallel_for(a.n, row_grain(a.width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) std::memcpy(a.rows + i * a.width, a.table + a.ids[i] * a.width, bytes);
  });
}

const KernelAdder adder(Device::Kind::cpu, scale<float>, scale<double>, column_sums<float>, column_sums<double>,
                        gather_rows<float>, gather_rows<double>);

}  // namespace

double sum_of(const float* x, int64_t n) {
  return sum_kernel<float>(x, n);
}
double sum_of(const double* x, int64_t n) {
  return sum_kernel<double>(x, n);
}

}  // namespace lmx::ops
