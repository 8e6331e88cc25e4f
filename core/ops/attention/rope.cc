// Rotary position embedding (Su et al. 2021, section 3.2.2). For pair i of a head of size d at position t:
//
//   angle = t base^(-2 i / d)      (y0, y1) = (x0 cos - x1 sin, x0 sin + x1 cos)
//   dx: the same rotation of dy by -angle
#include "ops/attention/rope.h"

#include <cmath>

#include "lmx/ops.h"
#include "ops/common.h"

namespace lmx {
namespace {

using namespace ops;

// Cosines and sines of the angles of all rows: (N, size / 2) each.
struct Angles {
  Tensor cosines, sines;
};

Angles angles_of(Context& ctx, std::span<const int64_t> positions, int64_t half, double base, DType type) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < half; ++i)
    frequencies.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(half)));
  const Uploaded<int64_t> at = ctx.upload(std::vector<int64_t>(positions.begin(), positions.end()));
  const Uploaded<double> speeds = ctx.upload(std::move(frequencies));
  Angles angles{ctx.empty({at.size(), half}, type), ctx.empty({at.size(), half}, type)};
  with_values("rope", angles.cosines, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, RopeAngles<T>{at.data(), speeds.data(), angles.cosines.data<T>(), angles.sines.data<T>(), at.size(),
                                  half});
  });
  return angles;
}

Tensor rotated(Context& ctx, const Tensor& x, const Angles& angles, const RopeOptions& options, double turn) {
  Tensor y = x.like(MemClass::activations);
  with_values("rope", x, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, Rope<T>{x.data<T>(), y.data<T>(), angles.cosines.data<T>(), angles.sines.data<T>(),
                            static_cast<T>(turn), x.dim(0), options.heads, angles.cosines.dim(1), options.interleaved});
  });
  return y;
}

}  // namespace

Var rope(Context& ctx, const Var& x, std::span<const int64_t> positions, const RopeOptions& options) {
  const Shape& s = x.shape();
  if (s.rank() != 2 || options.heads < 1 || s[1] % (2 * options.heads) != 0)
    throw UserError(str("[rope] x ", s, " of ", options.heads, " heads: (N, heads size) with an even size expected"));
  if (static_cast<int64_t>(positions.size()) != s[0])
    throw UserError(str("[rope] ", positions.size(), " positions for x ", s, ": one for each row expected"));
  if (!(options.base > 0)) throw UserError(str("[rope] base ", options.base, ": must be positive"));
  const Angles angles = angles_of(ctx, positions, s[1] / (2 * options.heads), options.base, x.value().dtype());
  Var out(rotated(ctx, x.value(), angles, options, 1));
  if (recording(ctx, {&x})) {
    ctx.tape->record("rope", {x}, {out}, [&ctx, x, out, angles, options](Tape&) {
      Tape::accumulate(ctx, x, rotated(ctx, Tape::grad_of(out), angles, options, -1));
    });
  }
  return out;
}

}  // namespace lmx
