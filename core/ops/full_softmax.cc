// Softmax over the whole vocabulary from hidden states: z = h w^T + b, loss = sum_i w_i (logsumexp_j z_ij - z_i,t(i)).
//
// Rows are taken in blocks whose logits fit in 32 MB. A block's gradient dz is known as soon as its logits are, up to
// the factor that backward() brings, so dh = dz w, dw += dz^T h and db += sum dz are made at once and no logits are
// kept.
#include "ops/common.h"
#include "ops/softmax_rows.h"

namespace lmx {
namespace {

using namespace ops;

constexpr int64_t kBlockBytes = int64_t{32} << 20;

// The output layer in the type of matrix products; b is undefined where there is none.
struct Layer {
  Tensor h, w, b;
  int64_t n() const { return h.dim(0); }
  int64_t vocab() const { return w.dim(0); }
  DType value_type() const { return h.dtype() == DType::f64 ? DType::f64 : DType::f32; }
};

// Calls visit(first, logits (rows, V)) for blocks of rows; `logits` is overwritten by the next block.
template <class Visit>
void for_blocks(Context& ctx, const Layer& layer, Visit&& visit) {
  const int64_t n = layer.n(), v = layer.vocab();
  const int64_t row_bytes = v * static_cast<int64_t>(size_of(layer.value_type()));
  const int64_t rows = std::clamp<int64_t>(kBlockBytes / row_bytes, 1, std::max<int64_t>(n, 1));
  const Tensor buffer = ctx.empty({rows, v}, layer.value_type());
  for (int64_t first = 0; first < n; first += rows) {
    const int64_t count = std::min(rows, n - first);
    Tensor logits = buffer.slice(0, count);
    gemm(ctx, layer.h.slice(first, first + count), false, layer.w, true, logits);
    visit(first, logits);
  }
}

template <class T>
void add_bias_row(const Layer& layer, T* row) {
  if (layer.b.defined()) add_bias(row, layer.b.data<T>(), layer.vocab());
}

// Turns a block's logits into nlls (and, with `factor` not 0, into factor * weight * dz).
struct BlockLoss {
  const Layer& layer;
  const Tensor& targets;
  const Tensor& weights;
  double factor;
  std::vector<double> nll;  // (n) unweighted

  template <class T>
  void visit(int64_t first, Tensor& logits) {
    const int64_t v = layer.vocab();
    T* z = logits.data<T>();
    const int32_t* t = targets.data<int32_t>() + first;
    parallel_for(logits.dim(0), row_grain(v), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* row = z + i * v;
        add_bias_row(layer, row);
        const double lse = log_sum_exp(row, v);
        nll[static_cast<size_t>(first + i)] = lse - static_cast<double>(row[t[i]]);
        if (factor == 0) continue;
        const double scale = factor * weight_of(weights, first + i);
        softmax_row(row, row, lse, scale, v);
        row[t[i]] -= static_cast<T>(scale);
      }
    });
  }
};

// Gradients for seed 1 times `lift`.
struct Gradients {
  Tensor dh, dw, db;

  void add(Context& ctx, const Layer& layer, int64_t first, const Tensor& dz) {
    const Tensor dzc = to_compute(ctx, dz);
    const float beta = first == 0 ? 0.0f : 1.0f;
    if (dh.defined()) {
      Tensor rows = dh.slice(first, first + dz.dim(0));
      gemm(ctx, dzc, false, layer.w, false, rows);
    }
    if (dw.defined()) gemm(ctx, dzc, true, layer.h.slice(first, first + dz.dim(0)), false, dw, beta);
    if (db.defined()) column_sums(dz, db, beta);
  }
};

// Half precision rounds dz, whose entries are near 1 / V: a power of two lifts them out of its subnormal range.
double lift_for(const Context& ctx) {
  return ctx.compute == DType::f16 ? 1024.0 : 1.0;
}

double weighted_sum(const std::vector<double>& nll, const Tensor& weights) {
  double sum = 0;
  for (size_t i = 0; i < nll.size(); ++i) sum += weight_of(weights, static_cast<int64_t>(i)) * nll[i];
  return sum;
}

}  // namespace

Var full_softmax_loss(Context& ctx, const Var& h, const Var& w, const Var& b, const Tensor& targets,
                      const Tensor& weights) {
  const Tensor bias = b.defined() ? b.value() : Tensor();
  check_output_layer("full_softmax_loss", h.value(), w.value(), bias);
  const int64_t n = h.value().dim(0);
  check_targets("full_softmax_loss", targets, weights, n, {w.value().dim(0), "w", w.shape()});
  const Layer layer{to_compute(ctx, h.value()), compute_copy(ctx, w), bias};
  const bool record = n > 0 && recording(ctx, {&h, &w, &b});
  const double lift = lift_for(ctx);
  Gradients grads;
  const DType type = layer.value_type();
  if (record && h.requires_grad()) grads.dh = ctx.empty(h.shape(), type);
  if (record && w.requires_grad()) grads.dw = ctx.empty(w.shape(), type, MemClass::gradients);
  if (record && b.requires_grad()) grads.db = ctx.empty(b.shape(), type, MemClass::gradients);
  BlockLoss loss{layer, targets, weights, record ? lift : 0.0, std::vector<double>(static_cast<size_t>(n))};
  with_values("full_softmax_loss", h.value(), [&](auto zero) {
    for_blocks(ctx, layer, [&](int64_t first, Tensor& logits) {
      loss.visit<decltype(zero)>(first, logits);
      if (record) grads.add(ctx, layer, first, logits);
    });
  });
  Var out(scalar(ctx, weighted_sum(loss.nll, weights), type));
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
  const Layer layer{to_compute(ctx, h), to_compute(ctx, w), b};
  const Tensor no_weights;
  BlockLoss loss{layer, targets, no_weights, 0.0, std::vector<double>(static_cast<size_t>(h.dim(0)))};
  with_values("full_softmax_nll", h, [&](auto zero) {
    for_blocks(ctx, layer, [&](int64_t first, Tensor& logits) { loss.visit<decltype(zero)>(first, logits); });
  });
  Tensor nll = ctx.empty({h.dim(0)});
  std::transform(loss.nll.begin(), loss.nll.end(), nll.data<float>(), [](double x) { return static_cast<float>(x); });
  return nll;
}

Tensor full_softmax_logits(Context& ctx, const Tensor& h, const Tensor& w, const Tensor& b) {
  check_output_layer("full_softmax_logits", h, w, b);
  const Layer layer{to_compute(ctx, h), to_compute(ctx, w), b};
  Tensor logits = ctx.empty({h.dim(0), w.dim(0)}, layer.value_type());
  gemm(ctx, layer.h, false, layer.w, true, logits);
  with_values("full_softmax_logits", h, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(logits.dim(0), row_grain(logits.dim(1)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) add_bias_row(layer, logits.data<T>() + i * logits.dim(1));
    });
  });
  return logits;
}

}  // namespace lmx
