// Rotary position embedding (Su et al. 2021, section 3.2.2). For pair i of a head of size d at position t:
//
//   angle = t base^(-2 i / d)      (y0, y1) = (x0 cos - x1 sin, x0 sin + x1 cos)
//   dx: the same rotation of dy by -angle
//
// A projection that the product has rounded is rotated in place, in both directions: no one else reads it.
#include "ops/attention/rope.h"

#include <cmath>

#include "lmx/ops.h"
#include "ops/attention/attention_mma.h"
#include "ops/common.h"
#include "ops/layers/linear.h"

namespace lmx {
namespace {

using namespace ops;

struct Rotation {
  Rotations angles;
  RopeOptions options;
  double turn;  // 1, or -1 for the inverse rotation
};

template <class T, class S>
Rope<T, S> kernel(const Rotation& r, const Tensor& x, Tensor y, const OperandTarget& operand) {
  const RopeOptions& o = r.options;
  const Tensor &cosines = r.angles.cosines, &sines = r.angles.sines;
  return {x.data<S>(),
          y.data<S>(),
          cosines.data<T>(),
          sines.data<T>(),
          static_cast<T>(r.turn),
          x.dim(0),
          o.heads,
          cosines.dim(1),
          o.rotated == 0 ? o.heads : o.rotated,
          o.interleaved,
          operand};
}

// y = the rotation of x, f32 or f64
void rotate(Context& ctx, const Rotation& r, const Tensor& x, Tensor y, const OperandTarget& operand) {
  with_values("rope", x, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, kernel<T, T>(r, x, y, operand));
  });
}

// x = the rotation of x + bias, of 16 bits
void rotate_in_place(Context& ctx, const Rotation& r, const Tensor& x, const Var& bias) {
  with_kept<float>(x.dtype(), [&](auto zero) {
    auto arguments = kernel<float, decltype(zero)>(r, x, x, {});
    if (bias.defined()) arguments.bias = bias.value().data<float>();
    run_kernel(ctx, arguments);
  });
}

std::vector<double> frequencies_of(const RopeOptions& options, int64_t half) {
  std::vector<double> frequencies = options.frequencies;
  for (int64_t i = 0; i < half && options.frequencies.empty(); ++i)
    frequencies.push_back(std::pow(options.base, -static_cast<double>(i) / static_cast<double>(half)));
  if (static_cast<int64_t>(frequencies.size()) != half)
    throw UserError(
        str("[rope] ", frequencies.size(), " frequencies for heads of size ", 2 * half, ": ", half, " expected"));
  return frequencies;
}

void check_heads(const Shape& x, const RopeOptions& options) {
  if (x.rank() != 2 || options.heads < 1 || x[1] % (2 * options.heads) != 0)
    throw UserError(str("[rope] x ", x, " of ", options.heads, " heads: (N, heads size) with an even size expected"));
  if (options.rotated < 0 || options.rotated > options.heads)
    throw UserError(str("[rope] ", options.rotated, " rotated heads of ", options.heads, ": at most all of them"));
}

void check(const Shape& x, const Rotations& rotations, const RopeOptions& options) {
  check_heads(x, options);
  const Shape want{x[0], x[1] / (2 * options.heads)};
  if (rotations.cosines.shape() != want)
    throw UserError(str("[rope] cosines ", rotations.cosines.shape(), " for x ", x, " of ", options.heads,
                        " heads: ", want, " expected"));
}

}  // namespace

Rotations rotations_of(Context& ctx, std::span<const int64_t> positions, int64_t size, const RopeOptions& options,
                       DType type) {
  if (size < 2 || size % 2 != 0) throw UserError(str("[rope] heads of size ", size, ": an even size expected"));
  if (!(options.base > 0)) throw UserError(str("[rope] base ", options.base, ": must be positive"));
  const int64_t half = size / 2;
  const Uploaded<int64_t> at = ctx.upload(std::vector<int64_t>(positions.begin(), positions.end()));
  const Uploaded<double> speeds = ctx.upload(frequencies_of(options, half));
  Rotations r{ctx.empty({at.size(), half}, type), ctx.empty({at.size(), half}, type)};
  with_values("rope", r.cosines, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, RopeAngles<T>{at.data(), speeds.data(), r.cosines.data<T>(), r.sines.data<T>(), at.size(), half});
  });
  return r;
}

Var rope(Context& ctx, const Var& x, const Rotations& rotations, const RopeOptions& options) {
  check(x.shape(), rotations, options);
  check_same_type("rope", "x", x.value(), "cosines", rotations.cosines);
  const Var out(x.value().like(MemClass::activations));
  rotate(ctx, {rotations, options, 1}, x.value(), out.value(), target_of_copy(ctx, out));
  if (recording(ctx, {&x})) {
    ctx.tape->record("rope", {x}, {out}, [&ctx, x, out, rotations, options](Tape&) {
      const Tensor& dy = Tape::grad_of(out);
      const Tensor dx = dy.like(MemClass::activations), operand = operand_beside(ctx, dx);
      rotate(ctx, {rotations, options, -1}, dy, dx, operand_target(ctx, operand));
      Tape::accumulate(ctx, x, dx, operand);
    });
  }
  return out;
}

Var rope(Context& ctx, const Projection& projection, const Rotations& rotations, const RopeOptions& options) {
  const auto& [input, w, b] = projection;
  const Shape& shape = w.shape();
  const bool rounds = shape.rank() == 2 && w.value().dtype() == DType::f32 && options.heads >= 1 &&
                      on_tensor_cores(ctx, shape[0] / options.heads);
  if (!rounds) return rope(ctx, linear(ctx, input, w, b), rotations, options);
  const Var x = rounded_linear(ctx, input, w, b);
  check(x.shape(), rotations, options);
  rotate_in_place(ctx, {rotations, options, 1}, x.value(), b);
  const Var out(x.value());
  if (recording(ctx, {&x})) {
    ctx.tape->record("rope", {x}, {out}, [&ctx, x, out, rotations, options](Tape&) {
      const Tensor& dx = Tape::grad_of(out);
      rotate_in_place(ctx, {rotations, options, -1}, dx, {});
      Tape::accumulate(ctx, x, dx);
    });
  }
  return out;
}

Var rope(Context& ctx, const Var& x, std::span<const int64_t> positions, const RopeOptions& options) {
  check_heads(x.shape(), options);
  if (static_cast<int64_t>(positions.size()) != x.shape()[0])
    throw UserError(str("[rope] ", positions.size(), " positions for x ", x.shape(), ": one for each row expected"));
  const int64_t size = x.shape()[1] / options.heads;
  return rope(ctx, x, rotations_of(ctx, positions, size, options, x.value().dtype()), options);
}

}  // namespace lmx
