#include "ops/losses/sampled_softmax.h"

#include "ops/losses/output_layer.h"
#include "ops/softmax/softmax_rows.cuh"

namespace lmx::ops {
namespace {

template <class T>
struct OffsetElement {
  SampledSoftmaxOffsets<T> a;
  int64_t count() const { return a.samples; }
  __device__ void operator()(int64_t s) const { a.offset[s] = a.value(s); }
};

template <class T>
struct SampledRow {
  SampledSoftmaxForward<T> a;

  template <class Team>
  __device__ T target_logit(const Team& team, int64_t i) const {
    const int64_t t = a.targets[i];
    const T *h = a.h + i * a.width, *w = a.w + t * a.width;
    T part = 0;
    for (int64_t j = team.first(); j < a.width; j += team.count()) part += h[j] * w[j];
    const T logit = static_cast<T>(sum_over(team, static_cast<double>(part))) + (a.b ? a.b[t] : T(0));
    return a.target_log_expected ? logit - static_cast<T>(a.target_log_expected[i]) : logit;
  }

  // The sum is over the target, which comes first, and the candidates.
  template <class Team>
  __device__ void operator()(const Team& team, int64_t i) const {
    T* p = a.p + i * a.samples;
    const T own = target_logit(team, i);
    const int32_t hit = a.remove_hits ? a.targets[i] : -1;
    const auto logit = [&](int64_t s) { return a.ids[s] == hit ? kMinusInfinity<T> : p[s] + a.offset[s]; };
    const ExpSum<T> exps = exp_sum<T>(team, a.samples + 1, [&](int64_t s) { return s == 0 ? own : logit(s - 1); });
    const double weight = weight_of(a.weights, i);
    const auto sum = static_cast<T>(exps.sum);
    if (team.first() == 0) {
      const SampledLoss<T> loss = sampled_loss(own, exps.most, sum, static_cast<T>(weight));
      a.nll[i] = weight * loss.nll;
      a.g[i] = loss.g;
    }
    if (!a.gradient) return;
    const T scale = static_cast<T>(weight) / sum;
    for (int64_t s = team.first(); s < a.samples; s += team.count()) p[s] = fast_exp(logit(s) - exps.most) * scale;
  }
};

template <class T>
struct TargetsRow {
  SampledSoftmaxTargets<T> a;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t i) const {
    const T g = a.g[i];
    const int64_t row = i * a.width, table = a.targets[i] * a.width;
    for (int64_t j = team.first(); j < a.width; j += team.count()) {
      if (a.dh) a.dh[row + j] += g * a.w[table + j];
      if (a.dw) a.dw[row + j] = g * a.h[row + j];
    }
  }
};

template <class T>
void forward(Context& ctx, const SampledSoftmaxForward<T>& a) {
  launch_rows(ctx, a.kName, a.n, std::max(a.samples, a.width), SampledRow<T>{a});
}
template <class T>
void targets(Context& ctx, const SampledSoftmaxTargets<T>& a) {
  launch_rows(ctx, a.kName, a.n, a.width, TargetsRow<T>{a});
}

const KernelAdder elements = cuda::each_kernels<OffsetElement>();
const KernelAdder rows(Device::Kind::cuda, forward<float>, forward<double>, targets<float>, targets<double>);

}  // namespace
}  // namespace lmx::ops
