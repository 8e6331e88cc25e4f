#include "ops/losses/output_layer.h"

#include "backend/convert.h"

namespace lmx::ops {

void check_targets(const char* op, const Tensor& targets, const Tensor& weights, int64_t n, const Classes& classes) {
  if (!targets.defined() || targets.shape() != Shape{n}) {
    throw UserError(str("[", op, "] targets ", describe(targets), ": (", n, ") expected, one for each row"));
  }
  check_ids(op, "targets", targets, classes.count, classes.tensor, classes.shape);
  if (weights.defined() && (weights.shape() != Shape{n} || weights.dtype() != DType::f32)) {
    throw UserError(str("[", op, "] weights ", describe(weights), ": (", n, ") f32 expected, one for each target"));
  }
}

void check_output_layer(const char* op, const Tensor& h, const Tensor& w, const Tensor& b) {
  if (h.rank() != 2 || w.rank() != 2 || h.dim(1) != w.dim(1)) {
    throw UserError(str("[", op, "] h ", h.shape(), " and w ", w.shape(), ": (n, D) and (V, D) expected"));
  }
  if (w.dim(0) == 0) throw UserError(str("[", op, "] w ", w.shape(), ": no words"));
  check_same_type(op, "h", h, "w", w);
  if (!b.defined()) return;
  if (b.shape() != Shape{w.dim(0)}) {
    throw UserError(str("[", op, "] b ", b.shape(), " for w ", w.shape(), ": (", w.dim(0), ") expected"));
  }
  check_same_type(op, "w", w, "b", b);
}

void check_inputs(const char* op, const SoftmaxInputs& in) {
  const Tensor &h = in.h.value(), &w = in.w.value();
  check_output_layer(op, h, w, in.b.defined() ? in.b.value() : Tensor());
  check_targets(op, in.targets, in.weights, h.dim(0), {w.dim(0), "w", w.shape()});
}

OutputGradients::OutputGradients(const Context& ctx, const SoftmaxInputs& in, int64_t words) : lift(lift_for(ctx)) {
  const DType type = in.h.value().dtype();
  const int64_t width = in.h.shape()[1];
  if (in.h.requires_grad()) dh = ctx.empty(in.h.shape(), type);
  if (in.w.requires_grad()) dw = ctx.empty({words, width}, type, MemClass::gradients);
  if (in.b.requires_grad()) db = ctx.empty({words}, type, MemClass::gradients);
}

void OutputGradients::add(Context& ctx, const OutputLayer& layer, int64_t first, const Tensor& dz) {
  const Tensor operand = as_operand(ctx, dz);
  const int64_t end = first + dz.dim(0);
  const float beta = first == 0 ? 0.0f : 1.0f;
  if (dh.defined()) {
    Tensor rows = dh.slice(first, end);
    gemm(ctx, operand, false, layer.w.slice(0, dz.dim(1)), false, rows);
  }
  if (dw.defined()) gemm(ctx, operand, true, layer.h.slice(first, end), false, dw, beta);
  if (db.defined()) column_sums(ctx, dz, db, beta);
}

void OutputGradients::scale(Context& ctx, const Tensor& seed) {
  for (Tensor* t : {&dh, &dw, &db})
    if (t->defined()) scale_by_seed(ctx, *t, seed, lift);
}

LossValue sum_of_losses(Context& ctx, const Tensor& nll, const Tensor& smoothed, const Tensor& weights, DType type) {
  Tensor nats = ctx.empty({1}, DType::f64), loss = ctx.empty({1}, type);
  with_values("sum_of_losses", loss, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, SumOfLosses<T>{nll.data<double>(), data_or_null<double>(smoothed), data_or_null<float>(weights),
                                   nats.data<double>(), loss.data<T>(), nll.numel()});
  });
  return {Var(loss), nats};
}

void scale_by_seed(Context& ctx, Tensor& x, const Tensor& seed, double lift) {
  with_values("scale_by_seed", x, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, ScaleBySeed<T>{x.data<T>(), seed.data<T>(), lift, x.numel()});
  });
}

Tensor converted(Context& ctx, const Tensor& t, DType type) {
  if (t.dtype() == type) return t;
  Tensor out = ctx.empty(t.shape(), type);
  if (type == DType::f64) {
    run_kernel(ctx, Convert<float, double>{t.data<float>(), out.data<double>(), t.numel()});
  } else {
    run_kernel(ctx, Convert<double, float>{t.data<double>(), out.data<float>(), t.numel()});
  }
  return out;
}

}  // namespace lmx::ops
