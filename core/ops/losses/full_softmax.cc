// Softmax over the whole vocabulary from hidden states: z = h w^T + b, loss = sum_i w_i (logsumexp_j z_ij - z_i,t(i)).
//
// Rows are processed in blocks of bounded memory (output_layer.h). A block's gradient dz is known as soon as its logits
// are, except for the factor that backward() supplies. So dh = dz w, dw += dz^T h and db += sum dz are computed at
// once, and no logits are stored.
//
// With gradients, a GPU stores the products h w^T and dz in the type of products, in the same memory. The bias, the
// losses and the slopes are computed in f32. Without gradients, logits are f32: an evaluation does not round them.
#include "ops/losses/full_softmax.h"

#include <optional>

#include "ops/layers/narrow_weight.h"
#include "ops/losses/output_layer.h"

namespace lmx {
namespace {

using namespace ops;

void add_bias_to_rows(Context& ctx, const OutputLayer& layer, Tensor& logits) {
  if (!layer.b.defined()) return;
  with_values("full_softmax_logits", logits, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, AddBias<T>{logits.data<T>(), layer.b.data<T>(), logits.dim(0), logits.dim(1)});
  });
}

// One pass over the blocks.
struct Pass {
  OutputLayer layer;
  Tensor targets, weights;  // on the device
  double smoothing = 0;
  LogitsVisitor visit = {};  // without gradients
  std::optional<OutputGradients> gradients = {};
  Tensor nll = {}, smoothed = {};  // f64 (n) unweighted; smoothed: undefined if `smoothing` is 0

  template <class T>
  void run(Context& ctx) {
    nll = ctx.empty({layer.n()}, DType::f64);
    if (smoothing > 0) smoothed = ctx.empty({layer.n()}, DType::f64);
    with_kept<T>(gradients ? kept_type<T>(ctx) : dtype_of<T>, [&](auto zero) { blocks<T, decltype(zero)>(ctx); });
  }

  template <class T, class S>
  void blocks(Context& ctx) {
    for_blocks(ctx, layer, gradients.has_value(), dtype_of<S>, [&](int64_t first, Tensor& logits) {
      if (visit) {
        add_bias_to_rows(ctx, layer, logits);
        visit(first, logits);
      }
      run_kernel(ctx, FullSoftmaxBlock<T, S>{logits.data<S>(), visit ? nullptr : data_or_null<T>(layer.b),
                                             targets.data<int32_t>(), data_or_null<float>(weights), nll.data<double>(),
                                             data_or_null<double>(smoothed), first, logits.dim(0), layer.words(),
                                             gradients ? gradients->lift : 0, smoothing});
      if (gradients) gradients->add(ctx, layer, first, logits);
    });
  }
};

}  // namespace

LossValue full_softmax_loss(Context& ctx, const SoftmaxInputs& in, double smoothing) {
  if (!(smoothing >= 0 && smoothing < 1))
    throw UserError(str("[full_softmax_loss] smoothing ", smoothing, ": must be at least 0 and less than 1"));
  check_inputs("full_softmax_loss", in);
  Pass pass{{compute_copy(ctx, in.h), compute_copy(ctx, in.w), in.b.defined() ? in.b.value() : Tensor()},
            ctx.upload(in.targets),
            upload_if_defined(ctx, in.weights),
            smoothing};
  if (pass.layer.n() > 0 && recording(ctx, {&in.h, &in.w, &in.b})) pass.gradients.emplace(ctx, in, pass.layer.words());
  with_values("full_softmax_loss", in.h.value(), [&](auto zero) { pass.run<decltype(zero)>(ctx); });
  LossValue value = sum_of_losses(ctx, pass.nll, pass.smoothed, pass.weights, pass.layer.value_type());
  if (pass.gradients) {
    ctx.tape->record(
        "full_softmax_loss", {in.h, in.w, in.b}, {value.loss},
        [&ctx, h = in.h, w = in.w, b = in.b, out = value.loss, gradients = *pass.gradients](Tape&) mutable {
          gradients.scale(ctx, Tape::grad_of(out));
          if (gradients.dh.defined()) Tape::accumulate(ctx, h, gradients.dh);
          if (gradients.dw.defined()) Tape::accumulate(ctx, w, gradients.dw);
          if (gradients.db.defined()) Tape::accumulate(ctx, b, gradients.db);
        });
  }
  return value;
}

Tensor full_softmax_nll(Context& ctx, const Tensor& h, const Tensor& w, const Tensor& b, const Tensor& targets,
                        const LogitsVisitor& visit) {
  check_output_layer("full_softmax_nll", h, w, b);
  check_targets("full_softmax_nll", targets, Tensor(), h.dim(0), {w.dim(0), "w", w.shape()});
  Pass pass{{to_compute(ctx, h), to_compute(ctx, w), b}, ctx.upload(targets), Tensor(), 0, visit};
  with_values("full_softmax_nll", h, [&](auto zero) { pass.run<decltype(zero)>(ctx); });
  return converted(ctx, pass.nll, DType::f32);
}

Tensor full_softmax_logits(Context& ctx, const Tensor& h, const Tensor& w, const Tensor& b) {
  check_output_layer("full_softmax_logits", h, w, b);
  const OutputLayer layer{to_compute(ctx, h), to_compute(ctx, w), b};
  Tensor logits = ctx.empty({h.dim(0), w.dim(0)}, layer.value_type());
  gemm(ctx, layer.h, false, layer.w, true, logits);
  add_bias_to_rows(ctx, layer, logits);
  return logits;
}

Tensor ops::repeated_logits(Context& ctx, const Tensor& h, const Var& w, const Tensor& b) {
  constexpr int64_t kFewRows = 192;
  const Tensor& value = w.value();
  const int64_t rows = h.dim(0);
  check_output_layer("full_softmax_logits", h, value, b);
  if (rows > kFewRows) return full_softmax_logits(ctx, h, value, b);
  const OutputLayer layer{to_compute(ctx, h), value, b};
  Tensor logits = ctx.empty({rows, value.dim(0)}, layer.value_type());
  if (!multiply_narrow(ctx, h, w, logits, 0)) {
    if (rows < 2 && (value.dtype() == ctx.compute || value.dtype() == DType::f64))
      gemm(ctx, layer.h, false, value, true, logits);
    else
      packed(ctx, w, true, rows).weight->multiply(ctx, layer.h, logits);
  }
  add_bias_to_rows(ctx, layer, logits);
  return logits;
}

}  // namespace lmx
