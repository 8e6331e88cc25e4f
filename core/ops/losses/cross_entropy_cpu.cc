#include "ops/losses/cross_entropy.h"

#include "ops/losses/output_layer.h"
#include "ops/softmax/softmax_rows.h"

namespace lmx::ops {
namespace {

template <class T>
void forward(Context&, const CrossEntropyForward<T>& a) {
  parallel_for(a.n, row_grain(a.words), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* row = a.z + i * a.words;
      a.lse[i] = log_sum_exp(row, a.words);
      a.nll[i] = a.lse[i] - static_cast<double>(row[a.targets[i]]);
    }
  });
}

template <class T>
void backward(Context&, const CrossEntropyBackward<T>& a) {
  const auto seed = static_cast<double>(*a.seed);
  parallel_for(a.n, row_grain(a.words), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double factor = seed * weight_of(a.weights, i);
      T* row = a.dz + i * a.words;
      softmax_row(a.z + i * a.words, row, a.lse[i], factor, a.words);
      row[a.targets[i]] -= static_cast<T>(factor);
    }
  });
}

const KernelAdder adder(Device::Kind::cpu, forward<float>, forward<double>, backward<float>, backward<double>);

}  // namespace
}  // namespace lmx::ops
