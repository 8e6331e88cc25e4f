// z = x up^T + up_bias, y = activation(z) mask, out = y down^T + down_bias:
//
//   dy = dout down      dz = dy mask activation'(z)      dx = dz up
//   dup = dz^T x        dup_bias = the column sums of dz
//   ddown = dout^T y    ddown_bias = the column sums of dout
//
//   relu       y = max(0, z)                        (Vaswani et al. 2017, section 3.3)
//   gelu_tanh  see ops/array/elementwise.cc
//   swiglu     y = g s(g) v, s being the sigmoid    (Shazeer 2020, section 2; z = [g, v])
//              dg = dy v s(g) (1 + g (1 - s(g)))    dv = dy g s(g)
//
// In bf16 and f16, z, y and their gradients exist in this type alone: the products read and write it, with one kernel
// in between. The first product then has no bias, which the kernel adds in f32.
// relu keeps y alone: it replaces z, and dz replaces dy. A dropped unit is 0, so dz needs no mask: the slope is
// 1 / (1 - p) where y > 0. The others keep z, which dz replaces, and y. Their units are not dropped, because backward
// would have to compute the mask again.
#include "ops/feed_forward/feed_forward.h"

#include "ops/layers/dropout.h"
#include "ops/layers/linear.h"

namespace lmx {
namespace {

using namespace ops;

constexpr const char* kOp = "feed_forward";

// Calls f(A{}) for the activation of units.
template <class F>
void with_activation(Activation activation, const F& f) {
  switch (activation) {
    case Activation::relu:
      return f(ReluUnits());
    case Activation::gelu_tanh:
      return f(GeluTanhUnits());
    case Activation::swiglu:
      return f(SwigluUnits());
  }
}

// Columns of z for each unit.
int64_t parts_of(const FeedForwardWeights& w) {
  return w.activation == Activation::swiglu ? SwigluUnits::kParts : 1;
}

void check(const Context& ctx, const Var& x, const FeedForwardWeights& w, double p) {
  const LinearNames first{kOp, "x", "up", "up_bias"};
  check_linear(first, x.shape(), w.up.value(), w.up_bias);
  const int64_t rows = w.up.value().dim(0), parts = parts_of(w);
  if (rows % parts != 0)
    throw UserError(str('[', kOp, "] up ", w.up.shape(), ": with swiglu (2 F, K) expected, F gates and F values"));
  check_linear({kOp, "units", "down", "down_bias"}, with_last(x.shape(), rows / parts), w.down.value(), w.down_bias);
  check_input(ctx, first, x, w.up.value());
  check_same_type(kOp, "up", w.up.value(), "down", w.down.value());
  if (p > 0 && w.activation != Activation::relu)
    throw UserError(str('[', kOp, "] probability ", p, ": only units of relu can be dropped"));
}

// Calls f(S{}) for the type of units.
template <class F>
void with_units(const Tensor& units, const F& f) {
  if (units.dtype() == DType::f64) return f(double());
  with_kept<float>(units.dtype(), f);
}

// The bias that kernels add to values z of products; null if z contains it.
const float* bias_beside(const Tensor& z, const Var& bias) {
  return size_of(z.dtype()) == 2 && bias.defined() ? bias.value().data<float>() : nullptr;
}

struct Units {
  Tensor kept, y;  // kept: y or z, see FeedForwardUnitsBackward
};

// The units for x of the compute type.
Units units_of(Context& ctx, const Tensor& x, const FeedForwardWeights& w, const RowMask& mask) {
  const Tensor up = compute_copy(ctx, w.up);
  const Tensor z = size_of(x.dtype()) == 2 ? rounded_product(ctx, x, up) : linear_value(ctx, x, up, w.up_bias);
  const Matrix m = fold(with_last(z.shape(), z.dim(-1) / parts_of(w)));
  Tensor y = z;
  with_activation(w.activation, [&](auto activation) {
    using A = decltype(activation);
    if (!A::kKeepsUnits) y = ctx.empty(with_last(z.shape(), m.cols), z.dtype());
    with_units(z, [&](auto zero) {
      using S = decltype(zero);
      run_kernel(ctx, FeedForwardUnits<A, S>{z.data<S>(), bias_beside(z, w.up_bias), y.data<S>(), mask.mask,
                                             mask.row_ids.data(), m.rows, m.cols});
    });
  });
  return {z, y};
}

struct Layer {
  Var x, out;
  FeedForwardWeights w;
  Tensor operand;  // x in the compute type
  Units units;
  RowMask mask;  // its row ids are kept so that all layers share one upload
};

// Turns dy or the layer's z into dz, and adds its column sums to the gradient of the bias, if this is trained.
Tensor differentiate_units(Context& ctx, const Layer& l, Tensor& dy) {
  const Matrix m = fold(dy.shape());
  const Var& bias = l.w.up_bias;
  Tape::Sink sums = bias.requires_grad() ? Tape::sink(ctx, bias) : Tape::Sink{{}, 0};
  const Tensor& kept = l.units.kept;
  Tensor dz;
  with_activation(l.w.activation, [&](auto activation) {
    using A = decltype(activation);
    dz = A::kKeepsUnits ? dy : kept;
    with_units(dy, [&](auto zero) {
      using S = decltype(zero);
      using T = Computed<S>;
      run_kernel(ctx, FeedForwardUnitsBackward<A, S>{
                          kept.data<S>(), A::kKeepsUnits ? nullptr : bias_beside(kept, bias), dy.data<S>(),
                          dz.data<S>(), sums.grad.defined() ? sums.grad.data<T>() : nullptr, m.rows, m.cols,
                          static_cast<T>(l.mask.mask.keep_scale), static_cast<T>(sums.beta)});
    });
  });
  return dz;
}

void backward(Context& ctx, const Layer& l) {
  const Tensor dout = Tape::operand_of_grad(ctx, l.out);
  Tensor dy = l.units.y.like(MemClass::activations);
  gemm(ctx, dout, false, compute_copy(ctx, l.w.down), false, dy);
  add_weight_gradient(ctx, l.w.down, dout, l.units.y);
  add_bias_gradient(ctx, l.w.down_bias, Tape::grad_of(l.out));
  const Tensor dz = differentiate_units(ctx, l, dy);
  if (l.x.requires_grad()) {
    const Tape::Sink dx = Tape::sink(ctx, l.x);
    project_back(ctx, dz, l.w.up, dx.grad, dx.beta);
  }
  add_weight_gradient(ctx, l.w.up, dz, l.operand);
}

// The layer without its result.
Layer layer_of(Context& ctx, const Var& x, const FeedForwardWeights& w, double p, RandomKey key,
               const std::vector<uint64_t>& row_ids) {
  check(ctx, x, w, p);
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
  return recorded(ctx, layer, linear_value(ctx, layer.units.y, compute_copy(ctx, w.down), w.down_bias));
}

Branch feed_forward_branch(Context& ctx, const Var& x, const FeedForwardWeights& w, double p, RandomKey key,
                           const std::vector<uint64_t>& row_ids) {
  Layer layer = layer_of(ctx, x, w, p, key, row_ids);
  const BranchValue value = branch_value(ctx, layer.units.y, compute_copy(ctx, w.down), w.down_bias);
  if (value.bias.defined()) layer.w.down_bias = {};  // the op that adds it computes its gradient
  return {recorded(ctx, layer, value.product), value.bias};
}

}  // namespace lmx
