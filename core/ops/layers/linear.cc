// y = x w^T + b:  dx = dy w,  dw = dy^T x,  db = the column sums of dy.
#include "ops/layers/linear.h"

#include "backend/gemm_kernel.h"
#include "ops/array/broadcast.h"
#include "ops/residual/residual_norm.h"

namespace lmx {
namespace ops {

void check_linear(const LinearNames& name, const Shape& x, const Tensor& w, const Var& b) {
  const auto fail = [&](const auto&... text) { throw UserError(str('[', name.op, "] ", text...)); };
  if (w.rank() != 2) fail(name.w, ' ', w.shape(), ": (N, K) expected");
  if (x.rank() < 1 || x[x.rank() - 1] != w.dim(1))
    fail(name.x, ' ', x, " and ", name.w, ' ', w.shape(), ": the last sizes must be equal");
  if (!b.defined()) return;
  if (b.shape() != Shape{w.dim(0)})
    fail(name.b, ' ', b.shape(), " for ", name.w, ' ', w.shape(), ": (", w.dim(0), ") expected");
  check_same_type(name.op, name.w, w, name.b, b.value());
}

namespace {

// Whether ops store values that only linear layers read in the type of products.
bool stores_inputs(Device::Kind device, DType compute) {
  return device == Device::Kind::cpu ? multiplies_bf16(compute) : stores_operands(device, compute);
}

}  // namespace

void check_input(const Context& ctx, const LinearNames& name, const Var& x, const Tensor& w) {
  const bool rounded = stores_inputs(ctx.device.kind, ctx.compute) && x.value().dtype() == ctx.compute;
  if (!rounded) check_same_type(name.op, name.x, x.value(), name.w, w);
}

Tensor linear_value(Context& ctx, const Tensor& x, const Tensor& w, const Var& b) {
  const DType type = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Shape shape = with_last(x.shape(), w.dim(0));
  if (b.defined() && x.dim(-1) > 0 && gemm_adds_bias(x.dtype())) {
    Tensor y = ctx.empty(shape, type);
    if (gemm_with_bias(ctx, x, w, b.value(), y)) return y;
  }
  Tensor y = b.defined() ? repeated(ctx, b.value(), shape) : ctx.empty(shape, type);
  gemm(ctx, x, false, w, true, y, b.defined() ? 1.0f : 0.0f);
  return y;
}

Tensor rounded_product(Context& ctx, const Tensor& x, const Tensor& w) {
  Tensor y = ctx.empty(with_last(x.shape(), w.dim(0)), x.dtype());
  gemm(ctx, x, false, w, true, y);
  return y;
}

bool rounds_branches(Device::Kind device, DType compute, int64_t columns) {
  return stores_inputs(device, compute) && columns <= kMostResidualColumns;
}

BranchValue branch_value(Context& ctx, const Tensor& x, const Tensor& w, const Var& b) {
  if (rounds_branches(ctx.device.kind, x.dtype(), w.dim(0))) return {rounded_product(ctx, x, w), b};
  return {linear_value(ctx, x, w, b), {}};
}

}  // namespace ops

using namespace ops;

namespace {

struct Layer {
  Var x, w, b;
  Tensor operand;  // x in the compute type
};

Layer layer_of(Context& ctx, const char* op, const Var& x, const Var& w, const Var& b) {
  const LinearNames names{op, "x", "w", "b"};
  check_linear(names, x.shape(), w.value(), b);
  check_input(ctx, names, x, w.value());
  return {x, w, b, compute_copy(ctx, x)};
}

Var recorded(Context& ctx, const Layer& l, Tensor value) {
  Var out(std::move(value));
  if (recording(ctx, {&l.x, &l.w, &l.b})) {
    ctx.tape->record("linear", {l.x, l.w, l.b}, {out}, [&ctx, l, out](Tape&) {
      const Tensor dy = Tape::grad_of(out);
      const Tensor dyc = Tape::operand_of_grad(ctx, out);
      if (l.x.requires_grad()) {
        Tape::Sink dx = Tape::sink(ctx, l.x);
        gemm(ctx, dyc, false, compute_copy(ctx, l.w), false, dx.grad, dx.beta);
      }
      add_weight_gradient(ctx, l.w, dyc, l.operand);
      add_bias_gradient(ctx, l.b, dy);
    });
  }
  return out;
}

}  // namespace

Var linear(Context& ctx, const Var& x, const Var& w, const Var& b) {
  const Layer layer = layer_of(ctx, "linear", x, w, b);
  return recorded(ctx, layer, linear_value(ctx, layer.operand, compute_copy(ctx, w), b));
}

Var ops::rounded_linear(Context& ctx, const Var& x, const Var& w, const Var& b) {
  const Layer layer = layer_of(ctx, "attention", x, w, b);
  return recorded(ctx, layer, rounded_product(ctx, layer.operand, compute_copy(ctx, w)));
}

Branch linear_branch(Context& ctx, const Var& x, const Var& w, const Var& b) {
  Layer layer = layer_of(ctx, "linear_branch", x, w, b);
  const BranchValue value = branch_value(ctx, layer.operand, compute_copy(ctx, w), b);
  if (value.bias.defined()) layer.b = {};  // the op that adds it computes its gradient
  return {recorded(ctx, layer, value.product), value.bias};
}

}  // namespace lmx
