// softmax, log_softmax and cross_entropy.
#include "ops/softmax/softmax.h"

#include "ops/losses/cross_entropy.h"
#include "ops/losses/output_layer.h"
#include "ops/softmax/softmax_rows.cuh"
#include "ops/softmax/softmax_rows.h"

namespace lmx::ops {
namespace {

template <class T>
struct SoftmaxRow {
  SoftmaxForward<T> a;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t r) const {
    const T* x = a.x + r * a.cols;
    T* y = a.y + r * a.cols;
    const auto lse = static_cast<T>(exp_sum<T>(team, a.cols, [x](int64_t j) { return x[j]; }).log());
    for (int64_t j = team.first(); j < a.cols; j += team.count())
      y[j] = a.logarithm ? x[j] - lse : softmax_value(x[j], lse, T(1));
  }
};

template <class T>
struct SoftmaxBackwardRow {
  SoftmaxBackward<T> a;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t r) const {
    const T *y = a.y + r * a.cols, *dy = a.dy + r * a.cols;
    T* dx = a.dx + r * a.cols;
    T part = 0;
    for (int64_t j = team.first(); j < a.cols; j += team.count()) part += a.logarithm ? dy[j] : y[j] * dy[j];
    const auto sum = static_cast<T>(sum_over(team, static_cast<double>(part)));
    for (int64_t j = team.first(); j < a.cols; j += team.count())
      dx[j] = a.logarithm ? log_softmax_slope(y[j], dy[j], sum) : softmax_slope(y[j], dy[j], sum);
  }
};

template <class T>
struct CrossEntropyRow {
  CrossEntropyForward<T> a;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t i) const {
    const T* z = a.z + i * a.words;
    const double lse = exp_sum<T>(team, a.words, [z](int64_t j) { return z[j]; }).log();
    if (team.first() != 0) return;
    a.lse[i] = lse;
    a.nll[i] = lse - static_cast<double>(z[a.targets[i]]);
  }
};

template <class T>
struct CrossEntropyBackwardRow {
  CrossEntropyBackward<T> a;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t i) const {
    const T* z = a.z + i * a.words;
    T* dz = a.dz + i * a.words;
    const auto factor = static_cast<T>(static_cast<double>(*a.seed) * weight_of(a.weights, i));
    const auto lse = static_cast<T>(a.lse[i]);
    const int64_t target = a.targets[i];
    for (int64_t j = team.first(); j < a.words; j += team.count())
      dz[j] = softmax_value(z[j], lse, factor) - (j == target ? factor : T(0));
  }
};

template <class T>
void forward(Context& ctx, const SoftmaxForward<T>& a) {
  launch_rows(ctx, a.kName, a.rows, a.cols, SoftmaxRow<T>{a});
}
template <class T>
void backward(Context& ctx, const SoftmaxBackward<T>& a) {
  launch_rows(ctx, a.kName, a.rows, a.cols, SoftmaxBackwardRow<T>{a});
}
template <class T>
void entropy(Context& ctx, const CrossEntropyForward<T>& a) {
  launch_rows(ctx, a.kName, a.n, a.words, CrossEntropyRow<T>{a});
}
template <class T>
void entropy_backward(Context& ctx, const CrossEntropyBackward<T>& a) {
  launch_rows(ctx, a.kName, a.n, a.words, CrossEntropyBackwardRow<T>{a});
}

const KernelAdder adder(Device::Kind::cuda, forward<float>, forward<double>, backward<float>, backward<double>,
                        entropy<float>, entropy<double>, entropy_backward<float>, entropy_backward<double>);

}  // namespace
}  // namespace lmx::ops
