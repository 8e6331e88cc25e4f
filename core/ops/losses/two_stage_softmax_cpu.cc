#include "ops/losses/two_stage_softmax.h"

#include "autograd/gradient_sums.h"
#include "ops/losses/output_layer.h"
#include "ops/softmax/softmax_rows.h"

namespace lmx::ops {
namespace {

template <class T>
void block(Context&, const TwoStageBlock<T>& a) {
  const int64_t rest = a.words - a.trained;
  parallel_for(a.rows, row_grain(a.words), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row = a.z + i * a.words;
      const int64_t at = a.first + i, target = a.places[at];
      if (a.b) add_row(row, a.b, a.words);
      const double lse = log_sum_exp(row, a.words);
      a.nll[at] = lse - static_cast<double>(row[target]);
      if (a.factor == 0) continue;
      const double scale = a.factor * weight_of(a.weights, at);
      if (a.others) softmax_row(row + a.trained, a.others + i * rest, lse, scale, rest);
      T* d = a.all + i * a.trained;
      softmax_row(row, d, lse, scale, a.trained);
      d[target] -= static_cast<T>(scale);
    }
  });
}

const KernelAdder adder(Device::Kind::cpu, block<float>, block<double>);

}  // namespace
}  // namespace lmx::ops
