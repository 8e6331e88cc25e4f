// loss = sum_i w_i (logsumexp_j z_ij - z_i,t(i)):    dz_ij = w_i (softmax(z_i)_j - [j = t(i)])
#include "ops/losses/cross_entropy.h"

#include "ops/losses/output_layer.h"

namespace lmx {
namespace {

using namespace ops;

struct Saved {
  Var logits, out;
  Tensor targets, weights;  // on the device
  Tensor lse;               // f64 (n)
};

template <class T>
void backward(Context& ctx, const Saved& s) {
  const Tensor& z = s.logits.value();
  Tensor dz = z.like(MemClass::activations);
  run_kernel(ctx, CrossEntropyBackward<T>{z.data<T>(), s.targets.data<int32_t>(), data_or_null<float>(s.weights),
                                          s.lse.data<double>(), Tape::grad_of(s.out).data<T>(), dz.data<T>(), z.dim(0),
                                          z.dim(1)});
  Tape::accumulate(ctx, s.logits, dz);
}

}  // namespace

Var cross_entropy(Context& ctx, const Var& logits, const Tensor& targets, const Tensor& weights) {
  const Tensor& z = logits.value();
  if (z.rank() != 2 || z.dim(1) == 0) throw UserError(str("[cross_entropy] logits ", z.shape(), ": (n, V) expected"));
  const int64_t n = z.dim(0), v = z.dim(1);
  check_targets("cross_entropy", targets, weights, n, {v, "logits", z.shape()});
  return with_values("cross_entropy", z, [&](auto zero) {
    using T = decltype(zero);
    Saved s{logits, {}, ctx.upload(targets), upload_if_defined(ctx, weights), ctx.empty({n}, DType::f64)};
    Tensor nll = ctx.empty({n}, DType::f64);
    run_kernel(ctx, CrossEntropyForward<T>{z.data<T>(), s.targets.data<int32_t>(), s.lse.data<double>(),
                                           nll.data<double>(), n, v});
    s.out = sum_of_losses(ctx, nll, Tensor(), s.weights, z.dtype()).loss;
    if (recording(ctx, {&logits}))
      ctx.tape->record("cross_entropy", {logits}, {s.out}, [&ctx, s](Tape&) { backward<T>(ctx, s); });
    return s.out;
  });
}

}  // namespace lmx
