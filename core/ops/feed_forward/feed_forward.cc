// y = max(0, x up^T + up_bias) mask, out = y down^T + down_bias (Vaswani et al. 2017, section 3.3):
//
//   dy = dout down      dz = dy / (1 - p) where y > 0, else 0      dx = dz up
//   dup = dz^T x        dup_bias = the column sums of dz
//   ddown = dout^T y    ddown_bias = the column sums of dout
//
// In bf16 and f16, the units y and their gradient exist in this type alone: the products read and write it, and one
// kernel in each direction changes them in place. The first product then has no bias, which the kernel adds in f32.
// dz needs no mask, because a dropped unit is 0.
#include "ops/feed_forward/feed_forward.h"

#include "ops/layers/dropout.h"
#include "ops/layers/linear.h"

namespace lmx {
namespace {

using namespace ops;

constexpr const char* kOp = "feed_forward";

void check(const Var& x, const FeedForwardWeights& w) {
  check_linear({kOp, "x", "up", "up_bias"}, x.shape(), w.up.value(), w.up_bias);
  check_linear({kOp, "units", "down", "down_bias"}, with_last(x.shape(), w.up.value().dim(0)), w.down.value(),
               w.down_bias);
  check_same_type(kOp, "x", x.value(), "up", w.up.value());
  check_same_type(kOp, "up", w.up.value(), "down", w.down.value());
}

// Calls f(S{}) for the type of units.
template <class F>
void with_units(const Tensor& units, const F& f) {
  if (units.dtype() == DType::f64) return f(double());
  with_kept<float>(units.dtype(), f);
}

// y, for x of the compute type.
Tensor units_of(Context& ctx, const Tensor& x, const FeedForwardWeights& w, const RowMask& mask) {
  const Tensor up = compute_copy(ctx, w.up);
  const bool rounded = x.dtype() == DType::bf16 || x.dtype() == DType::f16;
  Tensor y = rounded ? rounded_product(ctx, x, up) : linear_value(ctx, x, up, w.up_bias);
  const float* bias = rounded && w.up_bias.defined() ? w.up_bias.value().data<float>() : nullptr;
  const Matrix m = fold(y.shape());
  with_units(y, [&](auto zero) {
    using S = decltype(zero);
    run_kernel(ctx, FeedForwardUnits<S>{y.data<S>(), bias, mask.mask, mask.row_ids.data(), m.rows, m.cols});
  });
  return y;
}

struct Layer {
  Var x, out;
  FeedForwardWeights w;
  Tensor operand, y;  // operand: x in the compute type
  RowMask mask;       // its row ids are kept so that all layers share one upload
};

// Turns dy into dz, and adds its column sums to the gradient of the bias.
void differentiate_units(Context& ctx, const Layer& l, Tensor& dy) {
  const Matrix m = fold(dy.shape());
  const Var& bias = l.w.up_bias;
  // Without a bias, or if it is frozen, the sums are not used.
  Tape::Sink sums =
      bias.requires_grad() ? Tape::sink(ctx, bias) : Tape::Sink{ctx.empty({m.cols}, l.x.value().dtype()), 0};
  with_units(dy, [&](auto zero) {
    using S = decltype(zero);
    using T = Computed<S>;
    run_kernel(ctx, FeedForwardUnitsBackward<S>{l.y.data<S>(), dy.data<S>(), sums.grad.data<T>(), m.rows, m.cols,
                                                static_cast<T>(l.mask.mask.keep_scale), static_cast<T>(sums.beta)});
  });
}

void backward(Context& ctx, const Layer& l) {
  const Tensor dout = Tape::operand_of_grad(ctx, l.out);
  Tensor dy = l.y.like(MemClass::activations);
  gemm(ctx, dout, false, compute_copy(ctx, l.w.down), false, dy);
  add_weight_gradient(ctx, l.w.down, dout, l.y);
  add_bias_gradient(ctx, l.w.down_bias, Tape::grad_of(l.out));
  differentiate_units(ctx, l, dy);
  if (l.x.requires_grad()) {
    const Tape::Sink dx = Tape::sink(ctx, l.x);
    project_back(ctx, dy, l.w.up, dx.grad, dx.beta);
  }
  add_weight_gradient(ctx, l.w.up, dy, l.operand);
}

// The layer without its result.
Layer layer_of(Context& ctx, const Var& x, const FeedForwardWeights& w, double p, RandomKey key,
               const std::vector<uint64_t>& row_ids) {
  check(x, w);
  RowMask mask;
  if (drops(ctx, kOp, p)) {
    check_row_ids(kOp, row_ids, x.shape());
    mask = RowMask(ctx, DropMask(p, key), row_ids, w.up.value().dim(0));
  }
  const Tensor operand = compute_copy(ctx, x);
  return {x, {}, w, operand, units_of(ctx, operand, w, mask), mask};
}

Var recorded(Context& ctx, Layer layer, Tensor value) {
  layer.out = Var(std::move(value));
  const Var &x = layer.x, &out = layer.out;
  const FeedForwardWeights& w = layer.w;
  if (recording(ctx, {&x, &w.up, &w.up_bias, &w.down, &w.down_bias}))
    ctx.tape->record(kOp, {w.down, w.down_bias, x, w.up, w.up_bias}, {out},
                     [&ctx, layer](Tape&) { backward(ctx, layer); });
  return out;
}

}  // namespace

Var feed_forward(Context& ctx, const Var& x, const FeedForwardWeights& w, double p, RandomKey key,
                 const std::vector<uint64_t>& row_ids) {
  const Layer layer = layer_of(ctx, x, w, p, key, row_ids);
  return recorded(ctx, layer, linear_value(ctx, layer.y, compute_copy(ctx, w.down), w.down_bias));
}

Branch feed_forward_branch(Context& ctx, const Var& x, const FeedForwardWeights& w, double p, RandomKey key,
                           const std::vector<uint64_t>& row_ids) {
  Layer layer = layer_of(ctx, x, w, p, key, row_ids);
  const BranchValue value = branch_value(ctx, layer.y, compute_copy(ctx, w.down), w.down_bias);
  if (value.bias.defined()) layer.w.down_bias = {};  // the op that adds it computes its gradient
  return {recorded(ctx, layer, value.product), value.bias};
}

}  // namespace lmx
