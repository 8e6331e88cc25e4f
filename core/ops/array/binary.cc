// Arithmetic of two operands that broadcast. The gradient of an operand is summed where the operand repeats.
//
//   add       y = a + b     da = dy         db = dy
//   subtract  y = a - b     da = dy         db = -dy
//   multiply  y = a b       da = b dy       db = a dy
//   divide    y = a / b     da = dy / b     db = -a dy / b^2
#include "ops/array/binary.h"

#include "lmx/array_ops.h"

namespace lmx {
namespace {

using namespace ops;

template <class F, class First>
void backward(Context& ctx, const Var& a, const Var& b, const Tensor& dy) {
  const Var& input = First::value ? a : b;
  Tensor dx = dy.like(MemClass::activations);
  with_values(F::kName, dy, [&](auto zero) {
    using T = decltype(zero);
    const Walk<2> walk = walk_of<2>(dy.shape(), {&a.shape(), &b.shape()});
    run_kernel(ctx, BinaryBackward<F, First, T>{a.value().data<T>(), b.value().data<T>(), dy.data<T>(), dx.data<T>(),
                                                walk, dx.numel()});
  });
  Tape::accumulate(ctx, input, reduce_to(ctx, dx, input.shape()));
}

template <class F>
Var binary(Context& ctx, const Var& a, const Var& b) {
  check_same_type(F::kName, "a", a.value(), "b", b.value());
  const Shape shape = broadcast_shape(F::kName, "a", a.shape(), "b", b.shape());
  Tensor y = ctx.empty(shape, a.value().dtype());
  with_values(F::kName, y, [&](auto zero) {
    using T = decltype(zero);
    const Walk<2> walk = walk_of<2>(shape, {&a.shape(), &b.shape()});
    run_kernel(ctx, Binary<F, T>{a.value().data<T>(), b.value().data<T>(), y.data<T>(), walk, y.numel()});
  });
  Var out(y);
  if (recording(ctx, {&a, &b})) {
    ctx.tape->record(F::kName, {a, b}, {out}, [&ctx, a, b, out](Tape&) {
      const Tensor dy = Tape::grad_of(out);
      // An input takes ownership of the gradient that it is given, so only one of the inputs may take dy itself.
      if (b.requires_grad()) backward<F, std::false_type>(ctx, a, b, dy);
      if (!a.requires_grad()) return;
      if constexpr (F::kKeepsSlope) {
        Tape::accumulate(ctx, a, reduce_to(ctx, dy, a.shape()));
      } else {
        backward<F, std::true_type>(ctx, a, b, dy);
      }
    });
  }
  return out;
}

}  // namespace

Var add(Context& ctx, const Var& a, const Var& b) {
  return binary<Add>(ctx, a, b);
}
Var subtract(Context& ctx, const Var& a, const Var& b) {
  return binary<Subtract>(ctx, a, b);
}
Var multiply(Context& ctx, const Var& a, const Var& b) {
  return binary<Multiply>(ctx, a, b);
}
Var divide(Context& ctx, const Var& a, const Var& b) {
  return binary<Divide>(ctx, a, b);
}

}  // namespace lmx
