// full_softmax and two_stage_softmax: the losses of a block of rows, and the gradient of its logits in place.
#include "ops/losses/full_softmax.h"

#include "lmx/quads.cuh"
#include "ops/losses/output_layer.h"
#include "ops/losses/two_stage_softmax.h"
#include "ops/softmax/softmax_rows.cuh"
#include "ops/softmax/softmax_rows.h"

namespace lmx::ops {
namespace {

// A row of logits: the products, to which the bias is added when they are read.
template <class T>
struct Logits {
  const T *z, *b;
  __device__ T operator()(int64_t j) const { return b ? z[j] + b[j] : z[j]; }
  __device__ cuda::Quad<T> quad(int64_t j) const {
    cuda::Quad<T> x = cuda::quad_at(z + j);
    if (!b) return x;
    const cuda::Quad<T> bias = cuda::quad_at(b + j);
    for (int e = 0; e < cuda::kQuad; ++e) x.v[e] += bias.v[e];
    return x;
  }
};

template <class T>
struct FullSoftmaxRow {
  FullSoftmaxBlock<T> a;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t i) const {
    T* row = a.z + i * a.words;
    const int64_t at = a.first + i, target = a.targets[at];
    const Logits<T> logit{row, a.b};
    const T own = logit(target);  // before the gradient replaces it, see the barriers of exp_sum()
    double part = 0;
    const double lse = exp_sum<T>(team, a.words, [&](int64_t j) {
                         const T x = logit(j);
                         if (a.smoothing > 0) part += static_cast<double>(x);
                         return x;
                       }).log();
    const double total = a.smoothing > 0 ? sum_over(team, part) : 0;
    if (team.first() == 0) {
      const double nll = lse - static_cast<double>(own);
      a.nll[at] = nll;
      if (a.smoothing > 0) a.smoothed[at] = a.smoothed_loss(nll, lse, total);
    }
    if (a.factor == 0) return;
    const double scale = a.factor * weight_of(a.weights, at);
    const T spread = a.spread_slope(scale), at_target = a.target_slope(scale);
    const auto slope_of = [&](int64_t j, T x) {
      T slope = softmax_value(x, static_cast<T>(lse), static_cast<T>(scale));
      if (a.smoothing > 0) slope += spread;
      return j == target ? slope - at_target : slope;
    };
    if (a.words % cuda::kQuad == 0 && cuda::aligned_quads(a.z, a.b, static_cast<const T*>(a.operand.to))) {
      for (int64_t j = team.first() * cuda::kQuad; j < a.words; j += team.count() * cuda::kQuad) {
        cuda::Quad<T> slopes = logit.quad(j);
        for (int e = 0; e < cuda::kQuad; ++e) slopes.v[e] = slope_of(j + e, slopes.v[e]);
        cuda::put_quad(row + j, slopes);
        if (a.operand.to) cuda::put_quad(a.operand, i * a.words + j, slopes);
      }
      return;
    }
    for (int64_t j = team.first(); j < a.words; j += team.count()) {
      const T slope = slope_of(j, logit(j));
      row[j] = slope;
      if (a.operand.to) a.operand.store(i * a.words + j, slope);
    }
  }
};

template <class T>
struct TwoStageRow {
  TwoStageBlock<T> a;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t i) const {
    const int64_t at = a.first + i, target = a.places[at], rest = a.words - a.trained;
    const Logits<T> logit{a.z + i * a.words, a.b};
    const T own = logit(target);  // before the gradient replaces it, see the barriers of exp_sum()
    const double lse = exp_sum<T>(team, a.words, logit).log();
    if (team.first() == 0) a.nll[at] = lse - static_cast<double>(own);
    if (a.factor == 0) return;
    const double scale = a.factor * weight_of(a.weights, at);
    const auto shift = static_cast<T>(lse), factor = static_cast<T>(scale);
    T* all = a.all + i * a.trained;
    for (int64_t j = team.first(); j < a.trained; j += team.count())
      all[j] = softmax_value(logit(j), shift, factor) - (j == target ? factor : T(0));
    if (!a.others) return;
    for (int64_t j = team.first(); j < rest; j += team.count())
      a.others[i * rest + j] = softmax_value(logit(a.trained + j), shift, factor);
  }
};

template <class T>
struct BiasRow {
  AddBias<T> a;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t i) const {
    for (int64_t j = team.first(); j < a.cols; j += team.count()) a.x[i * a.cols + j] += a.b[j];
  }
};

template <class T>
void full(Context& ctx, const FullSoftmaxBlock<T>& a) {
  launch_rows(ctx, a.kName, a.rows, a.words, FullSoftmaxRow<T>{a});
}
template <class T>
void two_stage(Context& ctx, const TwoStageBlock<T>& a) {
  launch_rows(ctx, a.kName, a.rows, a.words, TwoStageRow<T>{a});
}
template <class T>
void bias(Context& ctx, const AddBias<T>& a) {
  launch_rows(ctx, a.kName, a.rows, a.cols, BiasRow<T>{a});
}

const KernelAdder adder(Device::Kind::cuda, full<float>, full<double>, two_stage<float>, two_stage<double>, bias<float>,
                        bias<double>);

}  // namespace
}  // namespace lmx::ops
