#include "autograd/gradient_sums.h"

#include <algorithm>

#include "lmx/parallel.h"

namespace lmx {

LMX_SIMD void add_row(float* sum, const float* row, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += row[i];
}
LMX_SIMD void add_row(double* sum, const double* row, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += row[i];
}

namespace {

template <class T>
void fill(Context&, const Fill<T>& a) {
  parallel_for(a.n, 1 << 15, [&](int64_t begin, int64_t end) { std::fill(a.x + begin, a.x + end, a.value); });
}

template <class T>
void add(Context&, const AddTensor<T>& a) {
  parallel_for(a.n, 1 << 15, [&](int64_t begin, int64_t end) { add_row(a.sum + begin, a.x + begin, end - begin); });
}

template <class T>
void add_rows(Context&, const AddRows<T>& a) {
  for (int64_t i = 0; i < a.n; ++i) add_row(a.table + a.ids[i] * a.width, a.rows + i * a.width, a.width);
}

template <class T>
void sum_runs(Context&, const SumRuns<T>& a) {
  parallel_for(a.n, std::max<int64_t>(1, 8192 / std::max<int64_t>(a.width, 1)), [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      T* sum = a.sums + u * a.width;
      std::copy_n(a.rows[a.starts[u]], a.width, sum);
      for (int64_t k = a.starts[u] + 1; k < a.starts[u + 1]; ++k) add_row(sum, a.rows[k], a.width);
    }
  });
}

const KernelAdder adder(Device::Kind::cpu, fill<float>, fill<double>, add<float>, add<double>, add_rows<float>,
                        add_rows<double>, sum_runs<float>, sum_runs<double>);

}  // namespace
}  // namespace lmx
