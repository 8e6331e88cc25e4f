// Softmax over the whole vocabulary from hidden states: z = h w^T + b, loss = sum_i w_i (logsumexp_j z_ij - z_i,t(i)).
//
// Rows are processed in blocks of bounded memory (output_layer.h). A block's gradient dz is known as soon as its logits
// are, except for the factor that backward() supplies. So dh = dz w, dw += dz^T h and db += sum dz are computed at
// once, and no logits are stored.
#include "ops/output_layer.h"

namespace lmx {
namespace {

using namespace ops;

template <class T>
LMX_SIMD double mean_of(const T* row, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(row[i]);
  return sum / static_cast<double>(n);
}

template <class T>
LMX_SIMD void add_to_row(T* row, T value, int64_t n) {
  for (int64_t i = 0; i < n; ++i) row[i] += value;
}

// Replaces a block's logits by factor * weight * dz if `factor` is not 0, and computes the nlls.
struct BlockLoss {
  const OutputLayer& layer;
  const Tensor& targets;
  const Tensor& weights;
  double factor;
  double smoothing;
  std::vector<double> nll, smoothed;  // (n) unweighted

  template <class T>
  void visit(int64_t first, Tensor& logits) {
    const int64_t v = layer.words();
    T* z = logits.data<T>();
    const int32_t* t = targets.data<int32_t>() + first;
    parallel_for(logits.dim(0), row_grain(v), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* row = z + i * v;
        layer.add_bias_to(row);
        const double lse = log_sum_exp(row, v);
        const auto at = static_cast<size_t>(first + i);
        nll[at] = lse - static_cast<double>(row[t[i]]);
        if (smoothing > 0) smoothed[at] = (1 - smoothing) * nll[at] + smoothing * (lse - mean_of(row, v));
        if (factor == 0) continue;
        const double scale = factor * weight_of(weights, first + i);
        softmax_row(row, row, lse, scale, v);
        if (smoothing > 0) add_to_row(row, static_cast<T>(-scale * smoothing / static_cast<double>(v)), v);
        row[t[i]] -= static_cast<T>(scale * (1 - smoothing));
      }
    });
  }
};

// Gradients for seed 1, multiplied by `lift`.
struct Gradients {
  Tensor dh, dw, db;

  void add(Context& ctx, const OutputLayer& layer, int64_t first, const Tensor& dz) {
    const Tensor dzc = as_operand(ctx, dz);
    const float beta = first == 0 ? 0.0f : 1.0f;
    if (dh.defined()) {
      Tensor rows = dh.slice(first, first + dz.dim(0));
      gemm(ctx, dzc, false, layer.w, false, rows);
    }
    if (dw.defined()) gemm(ctx, dzc, true, layer.h.slice(first, first + dz.dim(0)), false, dw, beta);
    if (db.defined()) column_sums(dz, db, beta);
  }
};

}  // namespace

Var full_softmax_loss(Context& ctx, const Var& h, const Var& w, const Var& b, const Tensor& targets,
                      const Tensor& weights) {
  return full_softmax_loss(ctx, h, w, b, targets, weights, 0, nullptr);
}

Var full_softmax_loss(Context& ctx, const Var& h, const Var& w, const Var& b, const Tensor& targets,
                      const Tensor& weights, double smoothing, double* nll) {
  if (!(smoothing >= 0 && smoothing < 1))
    throw UserError(str("[full_softmax_loss] smoothing ", smoothing, ": must be at least 0 and less than 1"));
  const Tensor bias = b.defined() ? b.value() : Tensor();
  check_output_layer("full_softmax_loss", h.value(), w.value(), bias);
  const int64_t n = h.value().dim(0);
  check_targets("full_softmax_loss", targets, weights, n, {w.value().dim(0), "w", w.shape()});
  const OutputLayer layer{to_compute(ctx, h.value()), compute_copy(ctx, w), bias};
  const bool record = n > 0 && recording(ctx, {&h, &w, &b});
  const double lift = lift_for(ctx);
  Gradients grads;
  const DType type = layer.value_type();
  if (record && h.requires_grad()) grads.dh = ctx.empty(h.shape(), type);
  if (record && w.requires_grad()) grads.dw = ctx.empty(w.shape(), type, MemClass::gradients);
  if (record && b.requires_grad()) grads.db = ctx.empty(b.shape(), type, MemClass::gradients);
  const auto rows = static_cast<size_t>(n);
  BlockLoss loss{layer,
                 targets,
                 weights,
                 record ? lift : 0.0,
                 smoothing,
                 std::vector<double>(rows),
                 std::vector<double>(smoothing > 0 ? rows : 0)};
  with_values("full_softmax_loss", h.value(), [&](auto zero) {
    for_blocks(ctx, layer, record, [&](int64_t first, Tensor& logits) {
      loss.visit<decltype(zero)>(first, logits);
      if (record) grads.add(ctx, layer, first, logits);
    });
  });
  if (nll) *nll = weighted_sum(loss.nll, weights);
  Var out(scalar(ctx, weighted_sum(smoothing > 0 ? loss.smoothed : loss.nll, weights), type));
  if (record) {
    ctx.tape->record("full_softmax_loss", {h, w, b}, {out}, [&ctx, h, w, b, grads, lift, out](Tape&) mutable {
      const double factor = scalar_value(Tape::grad_of(out)) / lift;
      const auto give = [&](const Var& to, Tensor& grad) {
        if (!grad.defined()) return;
        scale_in_place(grad, factor);
        Tape::accumulate(ctx, to, grad);
      };
      give(h, grads.dh);
      give(w, grads.dw);
      give(b, grads.db);
    });
  }
  return out;
}

Tensor full_softmax_nll(Context& ctx, const Tensor& h, const Tensor& w, const Tensor& b, const Tensor& targets) {
  check_output_layer("full_softmax_nll", h, w, b);
  check_targets("full_softmax_nll", targets, Tensor(), h.dim(0), {w.dim(0), "w", w.shape()});
  const OutputLayer layer{to_compute(ctx, h), to_compute(ctx, w), b};
  const Tensor no_weights;
  BlockLoss loss{layer, targets, no_weights, 0.0, 0.0, std::vector<double>(static_cast<size_t>(h.dim(0))), {}};
  with_values("full_softmax_nll", h, [&](auto zero) {
    for_blocks(ctx, layer, false, [&](int64_t first, Tensor& logits) { loss.visit<decltype(zero)>(first, logits); });
  });
  Tensor nll = ctx.empty({h.dim(0)});
  std::transform(loss.nll.begin(), loss.nll.end(), nll.data<float>(), [](double x) { return static_cast<float>(x); });
  return nll;
}

namespace {

void add_bias_to_rows(const OutputLayer& layer, Tensor& logits) {
  if (!layer.b.defined()) return;
  with_values("full_softmax_logits", logits, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(logits.dim(0), row_grain(logits.dim(1)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) layer.add_bias_to(logits.data<T>() + i * logits.dim(1));
    });
  });
}

}  // namespace

Tensor full_softmax_logits(Context& ctx, const Tensor& h, const Tensor& w, const Tensor& b) {
  check_output_layer("full_softmax_logits", h, w, b);
  const OutputLayer layer{to_compute(ctx, h), to_compute(ctx, w), b};
  Tensor logits = ctx.empty({h.dim(0), w.dim(0)}, layer.value_type());
  gemm(ctx, layer.h, false, layer.w, true, logits);
  add_bias_to_rows(layer, logits);
  return logits;
}

Tensor ops::repeated_logits(Context& ctx, const Tensor& h, const Var& w, const Tensor& b) {
  constexpr int64_t kFewRows = 192;
  const Tensor& value = w.value();
  const int64_t rows = h.dim(0);
  if (rows < 2 || rows > kFewRows) return full_softmax_logits(ctx, h, value, b);
  check_output_layer("full_softmax_logits", h, value, b);
  const OutputLayer layer{to_compute(ctx, h), value, b};
  Tensor logits = ctx.empty({rows, value.dim(0)}, layer.value_type());
  w.cached<PackedMatrix>(PackedMatrix::layout(ctx, value, true, rows), [&] {
     return PackedMatrix(ctx, value, true, rows);
   }).multiply(ctx, layer.h, logits);
  add_bias_to_rows(layer, logits);
  return logits;
}

}  // namespace lmx
