// full_softmax and two_stage_softmax: the losses of a block of rows, and the gradient of its logits in place.
#include "ops/losses/full_softmax.h"

#include "backend/cuda/unroll.cuh"
#include "lmx/quads.cuh"
#include "ops/losses/output_layer.h"
#include "ops/losses/two_stage_softmax.h"
#include "ops/softmax/softmax_rows.cuh"
#include "ops/softmax/softmax_rows.h"

namespace lmx::ops {
namespace {

// A row of logits: the products, to which the bias is added when they are read.
template <class T, class S = T>
struct Logits {
  const S* z;
  const T* b;
  __device__ T operator()(int64_t j) const { return b ? static_cast<T>(z[j]) + b[j] : static_cast<T>(z[j]); }
  template <int N>
  __device__ void load(int64_t j, T (&x)[N]) const {
    S products[N];
    T bias[N]{};
    cuda::elements_at(z + j, products);
    if (b) cuda::elements_at(b + j, bias);
    for (int e = 0; e < N; ++e) x[e] = b ? static_cast<T>(products[e]) + bias[e] : static_cast<T>(products[e]);
  }
};

// The row is read twice, by 16 bytes a thread if possible.
template <class S, class T>
struct FullSoftmaxRow {
  FullSoftmaxBlock<T, S> a;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t i) const {
    constexpr int kMost = 16 / sizeof(S);
    const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
    a.words % kMost == 0 && aligned(a.z) && aligned(a.b) ? by<kMost>(team, i) : by<1>(team, i);
  }
  // By N words at once.
  template <int N, class Team>
  __device__ void by(const Team& team, int64_t i) const {
    S* row = a.z + i * a.words;
    const int64_t at = a.first + i, target = a.targets[at];
    const Logits<T, S> logit{row, a.b};
    const T own = logit(target);  // before the gradient replaces it, see the barriers of exp_sum_of()
    double part = 0;
    const double lse = exp_sum_of<T, N>(team, a.words, [&](int64_t j, T(&x)[N]) {
                         logit.load(j, x);
                         if (a.smoothing > 0)
                           for (const T value : x) part += static_cast<double>(value);
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
    for (int64_t j = team.first() * N; j < a.words; j += team.count() * N) {
      T x[N];
      S slopes[N];
      logit.load(j, x);
      LMX_UNROLL
      for (int e = 0; e < N; ++e) {
        T slope = softmax_value(x[e], static_cast<T>(lse), static_cast<T>(scale));
        if (a.smoothing > 0) slope += spread;
        slopes[e] = static_cast<S>(j + e == target ? slope - at_target : slope);
      }
      cuda::put_elements(row + j, slopes);
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

template <class T, class S = T>
void full(Context& ctx, const FullSoftmaxBlock<T, S>& a) {
  launch_rows(ctx, a.kName, a.rows, a.words, FullSoftmaxRow<S, T>{a});
}
template <class T>
void two_stage(Context& ctx, const TwoStageBlock<T>& a) {
  launch_rows(ctx, a.kName, a.rows, a.words, TwoStageRow<T>{a});
}
template <class T>
void bias(Context& ctx, const AddBias<T>& a) {
  launch_rows(ctx, a.kName, a.rows, a.cols, BiasRow<T>{a});
}

const KernelAdder adder(Device::Kind::cuda, full<float>, full<double>, full<float, bfloat16>, full<float, float16>,
                        two_stage<float>, two_stage<double>, bias<float>, bias<double>);

}  // namespace
}  // namespace lmx::ops
