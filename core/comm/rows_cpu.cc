#include "comm/rows.h"

#include <algorithm>

#include "lmx/parallel.h"

namespace lmx::comm {
namespace {

constexpr int64_t kGrain = 1 << 15;  // smallest number of values for a thread

template <class T>
LMX_SIMD void add_scaled(T* __restrict to, const T* __restrict x, T factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += factor * x[i];
}
LMX_SIMD void scale(float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

template <class T>
bool whole(const RowsAt<T>& r, int64_t columns) {
  return !r.at && !r.pages && (!r.base || r.width == columns);
}

// Copies n elements from row i on.
template <class T>
void copy(const CopyRows<T>& a, int64_t i, int64_t n) {
  T* to = a.to.row(i);
  const T *from = a.from.row(i), *plus = a.plus.row(i);
  if (!from) {
    std::fill_n(to, n, T(0));
  } else if (from != to) {
    std::copy_n(from, n, to);
  }
  if (plus) add_scaled<T>(to, plus, a.factor, n);
}

template <class T>
void copy_rows(Context&, const CopyRows<T>& a) {
  const bool joined = whole(a.from, a.columns) && whole(a.plus, a.columns) && whole(a.to, a.columns);
  parallel_for(a.rows, rows_holding(kGrain, a.columns), [&](int64_t begin, int64_t end) {
    if (joined) return copy(a, begin, (end - begin) * a.columns);
    for (int64_t i = begin; i < end; ++i) copy(a, i, a.columns);
  });
}

void scale_rows(Context&, const ScaleRows<float>& a) {
  parallel_for(a.rows, rows_holding(kGrain, a.columns), [&](int64_t begin, int64_t end) {
    if (whole(a.x, a.columns)) return scale(a.x.row(begin), a.factor, (end - begin) * a.columns);
    for (int64_t i = begin; i < end; ++i) scale(a.x.row(i), a.factor, a.columns);
  });
}

void square_rows(Context&, const SquareRows<float>& a) {
  double sum = 0;
  for (int64_t i = 0; i < a.rows; ++i) sum += sum_of_squares({a.x.row(i), static_cast<size_t>(a.columns)});
  *a.sum += sum;
}

const KernelAdder adder(Device::Kind::cpu, copy_rows<float>, copy_rows<double>, scale_rows, square_rows);

}  // namespace
}  // namespace lmx::comm
