// y = layer_norm(s), s = x + (product + branch_bias) mask (Vaswani et al. 2017, section 3.1). From the gradient ds of
// layer_norm.cc:
//
//   dx = ds        dproduct = ds mask        dbranch_bias = the column sums of dproduct
//
// If the product of the branch has the type f32 or f64, the result is that of the ops dropout, add and layer_norm. A
// rounded product, which only a GPU computes, is read by one kernel in each direction. Backward computes s again: x and
// the product are kept anyway, and take less memory traffic than s. x, s and y are never rounded.
#include "ops/residual/residual_norm.h"

#include "ops/common.h"
#include "ops/layers/dropout.h"

namespace lmx {
namespace {

using namespace ops;

constexpr const char* kOp = "residual_norm";

void check(const ResidualInputs& in) {
  const Tensor &x = in.x.value(), &product = in.branch.product.value();
  const auto fail = [&](const auto&... text) { throw UserError(str('[', kOp, "] ", text...)); };
  if (x.rank() < 1 || x.dim(-1) == 0 || product.shape() != x.shape())
    fail("x ", x.shape(), " and product ", product.shape(), ": equal shapes (..., D) expected, D >= 1");
  const Shape d{x.dim(-1)};
  if (in.gain.shape() != d || in.bias.shape() != d)
    fail("x ", x.shape(), ", gain ", in.gain.shape(), ", bias ", in.bias.shape(), ": gain and bias must be ", d);
  const Var& branch_bias = in.branch.bias;
  if (branch_bias.defined() && branch_bias.shape() != d)
    fail("branch bias ", branch_bias.shape(), " for product ", product.shape(), ": ", d, " expected");
  // Their gradients are written side by side.
  if (in.gain.same(in.bias) || in.gain.same(branch_bias) || in.bias.same(branch_bias))
    fail("gain, bias and branch bias must be different variables");
  if (!(in.eps >= 0)) fail("eps ", in.eps, ": must not be negative");
  check_same_type(kOp, "x", x, "gain", in.gain.value());
  check_same_type(kOp, "x", x, "bias", in.bias.value());
  if (branch_bias.defined()) check_same_type(kOp, "x", x, "branch bias", branch_bias.value());
}

struct Saved {
  ResidualInputs in;
  RowMask mask;
  Var out;
  Tensor stats;  // (rows, 2)
};

template <class S>
ResidualSum<S> sum_of(const Saved& s) {
  const Matrix m = fold(s.in.x.shape());
  const Var& bias = s.in.branch.bias;
  return {s.in.x.value().data<float>(),
          s.in.branch.product.value().data<S>(),
          bias.defined() ? bias.value().data<float>() : nullptr,
          s.mask.mask,
          s.mask.row_ids.data(),
          m.rows,
          m.cols};
}

SummedGradient sums_for(Context& ctx, const Var& weight) {
  if (!weight.requires_grad()) return {};
  Tape::Sink sink = Tape::sink(ctx, weight);
  return {sink.grad.data<float>(), sink.beta};
}

template <class S>
void backward(Context& ctx, const Saved& s) {
  const auto& [x, branch, gain, bias, eps] = s.in;
  const Tensor dy = Tape::grad_of(s.out);
  Tape::Sink dx = x.requires_grad() ? Tape::sink(ctx, x) : Tape::Sink{{}, 0};
  Tensor dproduct = branch.product.requires_grad() ? branch.product.value().like(MemClass::activations) : Tensor();
  run_kernel(ctx, ResidualNormBackward<S>{sum_of<S>(s), gain.value().data<float>(), s.stats.data<float>(),
                                          dy.data<float>(), dx.grad.defined() ? dx.grad.data<float>() : nullptr,
                                          dx.beta, dproduct.defined() ? dproduct.data<S>() : nullptr,
                                          sums_for(ctx, gain), sums_for(ctx, bias), sums_for(ctx, branch.bias)});
  if (dproduct.defined()) Tape::accumulate(ctx, branch.product, dproduct);
}

template <class S>
Var fused(Context& ctx, const ResidualInputs& in, const RowMask& mask) {
  Tensor y = in.x.value().like(MemClass::activations);
  const Saved saved{in, mask, Var(y), ctx.empty({fold(in.x.shape()).rows, 2})};
  Tensor stats = saved.stats;
  run_kernel(ctx, ResidualNormForward<S>{sum_of<S>(saved), in.gain.value().data<float>(), in.bias.value().data<float>(),
                                         y.data<float>(), stats.data<float>(), static_cast<float>(in.eps),
                                         target_of_copy(ctx, saved.out)});
  const Branch& branch = in.branch;
  if (recording(ctx, {&in.x, &branch.product, &branch.bias, &in.gain, &in.bias}))
    ctx.tape->record(kOp, {in.x, branch.product, branch.bias, in.gain, in.bias}, {saved.out},
                     [&ctx, saved](Tape&) { backward<S>(ctx, saved); });
  return saved.out;
}

}  // namespace

Var residual_norm(Context& ctx, const ResidualInputs& in, double p, RandomKey key,
                  const std::vector<uint64_t>& row_ids) {
  check(in);
  const auto& [product, bias] = in.branch;
  const bool dropped = drops(ctx, kOp, p);
  if (dropped) check_row_ids(kOp, row_ids, in.x.shape());
  if (size_of(product.value().dtype()) == 2) {
    const RowMask mask = dropped ? RowMask(ctx, DropMask(p, key), row_ids, in.x.value().dim(-1)) : RowMask();
    return product.value().dtype() == DType::bf16 ? fused<bfloat16>(ctx, in, mask) : fused<float16>(ctx, in, mask);
  }
  const Var branch = bias.defined() ? add(ctx, product, bias) : product;
  const Var sum = add(ctx, in.x, dropped ? dropout(ctx, branch, p, key, row_ids) : branch);
  return layer_norm(ctx, sum, in.gain, in.bias, in.eps);
}

}  // namespace lmx
