#include "ops/losses/full_softmax.h"

#include "autograd/gradient_sums.h"
#include "ops/losses/output_layer.h"
#include "ops/softmax/softmax_rows.h"

namespace lmx::ops {
namespace {

template <class T>
LMX_SIMD void add_to_row(T* row, T value, int64_t n) {
  for (int64_t i = 0; i < n; ++i) row[i] += value;
}

template <class T>
void block(Context&, const FullSoftmaxBlock<T>& a) {
  const int64_t v = a.words;
  parallel_for(a.rows, row_grain(v), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row = a.z + i * v;
      const int64_t at = a.first + i;
      const int32_t target = a.targets[at];
      if (a.b) add_row(row, a.b, v);
      const double lse = log_sum_exp(row, v);
      const double nll = lse - static_cast<double>(row[target]);
      a.nll[at] = nll;
      if (a.smoothing > 0) a.smoothed[at] = a.smoothed_loss(nll, lse, sum_of(row, v));
      if (a.factor == 0) continue;
      const double scale = a.factor * weight_of(a.weights, at);
      softmax_row(row, row, lse, scale, v);
      if (a.smoothing > 0) add_to_row(row, a.spread_slope(scale), v);
      row[target] -= a.target_slope(scale);
    }
  });
}

template <class T>
void bias(Context&, const AddBias<T>& a) {
  parallel_for(a.rows, row_grain(a.cols), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) add_row(a.x + i * a.cols, a.b, a.cols);
  });
}

const KernelAdder adder(Device::Kind::cpu, block<float>, block<double>, bias<float>, bias<double>);

}  // namespace
}  // namespace lmx::ops
