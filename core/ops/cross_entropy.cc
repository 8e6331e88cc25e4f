// loss = sum_i w_i (logsumexp_j z_ij - z_i,t(i)):    dz_ij = w_i (softmax(z_i)_j - [j = t(i)])
#include "ops/common.h"
#include "ops/softmax_rows.h"

namespace lmx {

using namespace ops;

Var cross_entropy(Context& ctx, const Var& logits, const Tensor& targets, const Tensor& weights) {
  const Tensor& z = logits.value();
  if (z.rank() != 2 || z.dim(1) == 0) throw UserError(str("[cross_entropy] logits ", z.shape(), ": (n, V) expected"));
  const int64_t n = z.dim(0), v = z.dim(1);
  check_targets("cross_entropy", targets, weights, n, {v, "logits", z.shape()});
  const int32_t* t = targets.data<int32_t>();
  std::vector<double> lse(static_cast<size_t>(n));
  const double loss = with_values("cross_entropy", z, [&](auto zero) {
    const auto* pz = z.data<decltype(zero)>();
    parallel_for(n, row_grain(v), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) lse[static_cast<size_t>(i)] = log_sum_exp(pz + i * v, v);
    });
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      sum += weight_of(weights, i) * (lse[static_cast<size_t>(i)] - static_cast<double>(pz[i * v + t[i]]));
    }
    return sum;
  });
  Var out(scalar(ctx, loss, z.dtype()));
  if (recording(ctx, {&logits})) {
    ctx.tape->record("cross_entropy", {logits}, {out},
                     [&ctx, logits, targets, weights, lse = std::move(lse), out](Tape&) {
                       const double seed = scalar_value(Tape::grad_of(out));
                       const Tensor& value = logits.value();
                       Tensor dz = value.like(MemClass::activations);
                       with_values("cross_entropy", value, [&](auto zero) {
                         using T = decltype(zero);
                         const int64_t width = value.dim(1);
                         parallel_for(value.dim(0), row_grain(width), [&](int64_t begin, int64_t end) {
                           for (int64_t i = begin; i < end; ++i) {
                             const double factor = seed * weight_of(weights, i);
                             T* row = dz.data<T>() + i * width;
                             softmax_row(value.data<T>() + i * width, row, lse[static_cast<size_t>(i)], factor, width);
                             row[targets.data<int32_t>()[i]] -= static_cast<T>(factor);
                           }
                         });
                       });
                       Tape::accumulate(ctx, logits, dz);
                     });
  }
  return out;
}

}  // namespace lmx
