// y = norm(s), s = x + (product + branch_bias) mask: after a sub-layer (Vaswani et al. 2017, section 3.1), or before
// the next one, where s is a result as well. From the gradient of s, which is ds of layer_norm.cc or dx of rms_norm.cc
// plus the gradient of s as a result:
//
//   dx = ds        dproduct = ds mask        dbranch_bias = the column sums of dproduct
//
// If the product of the branch has the type f32 or f64, the results are those of the ops dropout, add, and layer_norm
// or rms_norm. A rounded product is read by one kernel in each direction. If s is no
// result, backward computes it again: x and the product are kept anyway, and take less memory traffic than s. x and s
// are never rounded, y only if linear layers alone read it.
#include "ops/residual/residual_norm.h"

#include "lmx/array_ops.h"
#include "ops/common.h"
#include "ops/layers/dropout.h"
#include "ops/layers/linear.h"

namespace lmx {
namespace {

using namespace ops;

// Any two of them that are defined must differ: their gradients are written side by side.
bool distinct(const Var& a, const Var& b) {
  return !a.defined() || !b.defined() || !a.same(b);
}

void check(const char* op, const ResidualInputs& in) {
  const auto& [x, branch, gain, bias, eps] = in;
  const auto fail = [&](const auto&... text) { throw UserError(str('[', op, "] ", text...)); };
  const Shape& s = x.shape();
  if (s.rank() < 1 || s[s.rank() - 1] == 0) fail("x ", s, ": (..., D) expected, D >= 1");
  if (branch.product.defined() && branch.product.shape() != s)
    fail("x ", s, " and product ", branch.product.shape(), ": equal shapes (..., D) expected, D >= 1");
  const Shape d{s[s.rank() - 1]};
  const auto shape_of = [](const Var& v) { return v.defined() ? str(v.shape()) : "none"; };
  if ((gain.defined() && gain.shape() != d) || (bias.defined() && (!gain.defined() || bias.shape() != d)))
    fail("x ", s, ", gain ", shape_of(gain), ", bias ", shape_of(bias), ": gain and bias must be ", d);
  if (branch.bias.defined() && branch.bias.shape() != d)
    fail("branch bias ", branch.bias.shape(), " for product ", s, ": ", d, " expected");
  if (!distinct(gain, bias) || !distinct(gain, branch.bias) || !distinct(bias, branch.bias))
    fail("gain, bias and branch bias must be different variables");
  if (!(eps >= 0)) fail("eps ", eps, ": must not be negative");
  const auto check_type = [&](const char* name, const Var& v) {
    if (v.defined()) check_same_type(op, "x", x.value(), name, v.value());
  };
  check_type("gain", gain);
  check_type("bias", bias);
  check_type("branch bias", branch.bias);
}

struct Saved {
  ResidualInputs in;
  RowMask mask;
  NormedSum out;  // the sum is undefined if it is no result, or is x
  Tensor stats;   // (rows, 2)
};

template <class S>
ResidualSum<S> sum_of(const Saved& s) {
  const Matrix m = fold(s.in.x.shape());
  const Branch& branch = s.in.branch;
  return {s.in.x.value().data<float>(),
          branch.product.defined() ? branch.product.value().data<S>() : nullptr,
          branch.bias.defined() ? branch.bias.value().data<float>() : nullptr,
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

template <class T>
T* data_of(const Tensor& t) {
  return t.defined() && t.dtype() == dtype_of<T> ? const_cast<T*>(t.data<T>()) : nullptr;
}
template <class T>
T* data_of(const Var& v) {
  return v.defined() ? data_of<T>(v.value()) : nullptr;
}

template <class S>
void backward(Context& ctx, const Saved& s) {
  const auto& [x, branch, gain, bias, eps] = s.in;
  const auto& [sum, norm] = s.out;
  const Tensor dy = norm.defined() ? Tape::grad_of(norm) : Tensor(), ds = sum.defined() ? Tape::grad_of(sum) : Tensor();
  Tape::Sink dx = x.requires_grad() ? Tape::sink(ctx, x) : Tape::Sink{{}, 0};
  Tensor dproduct = branch.product.requires_grad() ? branch.product.value().like(MemClass::activations) : Tensor();
  run_kernel(ctx, ResidualNormBackward<S>{sum_of<S>(s), data_of<float>(sum), !bias.defined(), data_of<float>(gain),
                                          data_of<float>(s.stats), data_of<float>(dy), data_of<S>(dy),
                                          data_of<float>(ds), data_of<float>(dx.grad), dx.beta, data_of<S>(dproduct),
                                          sums_for(ctx, gain), sums_for(ctx, bias), sums_for(ctx, branch.bias)});
  if (dproduct.defined()) Tape::accumulate(ctx, branch.product, dproduct);
}

struct Op {
  const char* name;
  bool sums;     // the sum is a result
  bool operand;  // the norm is rounded, if it can be
};

template <class S>
NormedSum fused(Context& ctx, const Op& op, const ResidualInputs& in, const RowMask& mask) {
  const auto& [x, branch, gain, bias, eps] = in;
  Saved saved{in, mask, {}, {}};
  if (op.sums && branch.product.defined()) saved.out.sum = Var(x.value().like(MemClass::activations));
  OperandTarget target;
  if (gain.defined()) {
    saved.out.norm = Var(ctx.empty(x.shape(), op.operand ? ctx.compute : DType::f32));
    saved.stats = ctx.empty({fold(x.shape()).rows, 2});
    Tensor operand = saved.out.norm.value();
    if (!op.operand) keep_copy(ctx, saved.out.norm, operand = operand_memory(ctx, operand));
    target = target_in(operand);
  }
  const auto& [sum, norm] = saved.out;
  run_kernel(ctx, ResidualNormForward<S>{sum_of<S>(saved), !bias.defined(), data_of<float>(gain), data_of<float>(bias),
                                         data_of<float>(sum), data_of<float>(norm), data_of<float>(saved.stats),
                                         static_cast<float>(eps), target});
  if (recording(ctx, {&x, &branch.product, &branch.bias, &gain, &bias})) {
    std::vector<Var> inputs, outputs;
    for (const Var& v : {x, branch.product, branch.bias, gain, bias})
      if (v.defined()) inputs.push_back(v);
    for (const Var& v : {sum, norm})
      if (v.defined()) outputs.push_back(v);
    ctx.tape->record(op.name, std::move(inputs), outputs, [&ctx, saved](Tape&) { backward<S>(ctx, saved); });
  }
  return saved.out;
}

// Without a branch, the norm has the bits of a connection whose sum was stored before.
bool fuses(const Context& ctx, const ResidualInputs& in) {
  if (in.branch.product.defined()) return size_of(in.branch.product.value().dtype()) == 2;
  const Tensor& x = in.x.value();
  return x.dtype() == DType::f32 && rounds_branches(ctx.device.kind, ctx.compute, x.dim(-1));
}

Var normalised(Context& ctx, const Var& sum, const ResidualInputs& in) {
  if (!in.gain.defined()) return {};
  return in.bias.defined() ? layer_norm(ctx, sum, in.gain, in.bias, in.eps) : rms_norm(ctx, sum, in.gain, in.eps);
}

NormedSum residual(Context& ctx, const Op& op, const ResidualInputs& in, double p, RandomKey key,
                   const std::vector<uint64_t>& row_ids) {
  check(op.name, in);
  const auto& [product, bias] = in.branch;
  const bool added = product.defined(), normed = in.gain.defined();
  if (op.sums ? !added && !normed : !added || !normed)
    throw UserError(str('[', op.name, "] x ", in.x.shape(), ": a branch ", op.sums ? "or" : "and", " a gain expected"));
  const bool dropped = drops(ctx, op.name, p) && added;
  if (dropped) check_row_ids(op.name, row_ids, in.x.shape());
  if (fuses(ctx, in)) {
    const int64_t columns = in.x.value().dim(-1);
    const RowMask mask = dropped ? RowMask(ctx, DropMask(p, key), row_ids, columns) : RowMask();
    NormedSum out = ctx.compute == DType::bf16 ? fused<bfloat16>(ctx, op, in, mask) : fused<float16>(ctx, op, in, mask);
    if (!added) out.sum = in.x;
    return out;
  }
  if (!added) return {in.x, normalised(ctx, in.x, in)};
  const Var branch = bias.defined() ? add(ctx, product, bias) : product;
  const Var sum = add(ctx, in.x, dropped ? dropout(ctx, branch, p, key, row_ids) : branch);
  return {sum, normalised(ctx, sum, in)};
}

}  // namespace

Var residual_norm(Context& ctx, const ResidualInputs& in, double p, RandomKey key,
                  const std::vector<uint64_t>& row_ids) {
  return residual(ctx, {"residual_norm", false, false}, in, p, key, row_ids).norm;
}

NormedSum residual_sum(Context& ctx, const ResidualInputs& in, bool operand, double p, RandomKey key,
                       const std::vector<uint64_t>& row_ids) {
  return residual(ctx, {"residual_sum", true, operand}, in, p, key, row_ids);
}

}  // namespace lmx
