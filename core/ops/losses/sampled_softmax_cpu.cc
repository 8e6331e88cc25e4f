#include "ops/losses/sampled_softmax.h"

#include <limits>

#include "ops/losses/output_layer.h"

namespace lmx::ops {
namespace {

// The values that loss_row needs for one target.
template <class T>
struct Target {
  T logit;  // z_i0
  T weight;
  int32_t hit;    // id of a candidate to leave out; -1: none
  bool gradient;  // replace the logits by p
};

// z (S): the products on entry. If gradients are needed, z contains p afterwards. `offset` is b - log E of the
// candidates.
template <class T>
LMX_SIMD SampledLoss<T> loss_row(T* __restrict z, const T* __restrict offset, const int32_t* __restrict ids, int64_t s,
                                 const Target<T>& target) {
  constexpr T kOut = -std::numeric_limits<T>::infinity();
  const int32_t hit = target.hit;
  T m = target.logit;
#pragma omp simd reduction(max : m)
  for (int64_t j = 0; j < s; ++j) {
    const T shifted = z[j] + offset[j];
    const T logit = ids[j] == hit ? kOut : shifted;
    z[j] = logit;
    m = logit > m ? logit : m;
  }
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < s; ++j) {
    const T e = fast_exp(z[j] - m);
    z[j] = e;
    sum += e;
  }
  sum += fast_exp(target.logit - m);
  if (target.gradient) {
    const T scale = target.weight / sum;
    for (int64_t j = 0; j < s; ++j) z[j] *= scale;
  }
  return sampled_loss(target.logit, m, sum, target.weight);
}

// Adds g w to the row of dh, and stores g h in the target's row of dw.
template <class T>
LMX_SIMD void target_gradients(T g, const T* __restrict h, const T* __restrict w, T* __restrict dh, T* __restrict dw,
                               int64_t d) {
  if (dh) {
    for (int64_t j = 0; j < d; ++j) dh[j] += g * w[j];
  }
  if (dw) {
    for (int64_t j = 0; j < d; ++j) dw[j] = g * h[j];
  }
}

template <class T>
void offsets(Context&, const SampledSoftmaxOffsets<T>& a) {
  for (int64_t s = 0; s < a.samples; ++s) a.offset[s] = a.value(s);
}

template <class T>
void forward(Context&, const SampledSoftmaxForward<T>& a) {
  const int64_t d = a.width;
  parallel_for(a.n, row_grain(2 * a.samples + 2 * d), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t t = a.targets[i];
      T logit = dot(a.h + i * d, a.w + t * d, d) + (a.b ? a.b[t] : T(0));
      if (a.target_log_expected) logit -= static_cast<T>(a.target_log_expected[i]);
      const double weight = weight_of(a.weights, i);
      const Target<T> target{logit, static_cast<T>(weight), a.remove_hits ? t : -1, a.gradient};
      const SampledLoss<T> row = loss_row<T>(a.p + i * a.samples, a.offset, a.ids, a.samples, target);
      a.nll[i] = weight * row.nll;
      a.g[i] = row.g;
    }
  });
}

template <class T>
void targets(Context&, const SampledSoftmaxTargets<T>& a) {
  const int64_t d = a.width;
  parallel_for(a.n, row_grain(2 * d), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      target_gradients<T>(a.g[i], a.h + i * d, a.w + a.targets[i] * d, a.dh ? a.dh + i * d : nullptr,
                          a.dw ? a.dw + i * d : nullptr, d);
    }
  });
}

const KernelAdder adder(Device::Kind::cpu, offsets<float>, offsets<double>, forward<float>, forward<double>,
                        targets<float>, targets<double>);

}  // namespace
}  // namespace lmx::ops
