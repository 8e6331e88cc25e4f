// Rotary position embedding (Su et al. 2021, section 3.2.2). For pair i of a head of size d at position t:
//
//   angle = t base^(-2 i / d)      (y0, y1) = (x0 cos - x1 sin, x0 sin + x1 cos)
//   dx: the same rotation of dy by -angle
#include <cmath>

#include "lmx/attention.h"
#include "ops/common.h"

namespace lmx {
namespace {

using namespace ops;

// Rotates all heads of one row. `turn` is 1, or -1 for the inverse rotation. cosines, sines: (size / 2).
template <class T>
LMX_SIMD void rotate_halves(const T* x, T* y, const T* cosines, const T* sines, T turn, int64_t heads, int64_t half) {
  for (int64_t h = 0; h < heads; ++h, x += 2 * half, y += 2 * half) {
    for (int64_t i = 0; i < half; ++i) {
      const T a = x[i], b = x[i + half], c = cosines[i], s = turn * sines[i];
      y[i] = a * c - b * s;
      y[i + half] = a * s + b * c;
    }
  }
}
template <class T>
LMX_SIMD void rotate_neighbours(const T* x, T* y, const T* cosines, const T* sines, T turn, int64_t heads,
                                int64_t half) {
  for (int64_t h = 0; h < heads; ++h, x += 2 * half, y += 2 * half) {
    for (int64_t i = 0; i < half; ++i) {
      const T a = x[2 * i], b = x[2 * i + 1], c = cosines[i], s = turn * sines[i];
      y[2 * i] = a * c - b * s;
      y[2 * i + 1] = a * s + b * c;
    }
  }
}

// Cosines and sines of the angles of all rows: (N, size / 2) each.
struct Angles {
  Tensor cosines, sines;
  Angles(Context& ctx, std::span<const int64_t> positions, int64_t half, double base, DType type)
      : cosines(ctx.empty({static_cast<int64_t>(positions.size()), half}, type)), sines(cosines.clone()) {
    std::vector<double> frequencies;
    for (int64_t i = 0; i < half; ++i)
      frequencies.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(half)));
    with_values("rope", cosines, [&](auto zero) {
      using T = decltype(zero);
      parallel_for(cosines.dim(0), row_grain(16 * half), [&](int64_t begin, int64_t end) {
        for (int64_t at = begin * half; at < end * half; ++at) {
          const double angle = static_cast<double>(positions[static_cast<size_t>(at / half)]) *
                               frequencies[static_cast<size_t>(at % half)];
          cosines.data<T>()[at] = static_cast<T>(std::cos(angle));
          sines.data<T>()[at] = static_cast<T>(std::sin(angle));
        }
      });
    });
  }
};

Tensor rotated(const Tensor& x, const Angles& angles, const RopeOptions& options, double turn) {
  Tensor y = x.like(MemClass::activations);
  const int64_t width = x.dim(1), half = angles.cosines.dim(1);
  with_values("rope", x, [&](auto zero) {
    using T = decltype(zero);
    const auto row = options.interleaved ? rotate_neighbours<T> : rotate_halves<T>;
    parallel_for(x.dim(0), row_grain(width), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        row(x.data<T>() + r * width, y.data<T>() + r * width, angles.cosines.data<T>() + r * half,
            angles.sines.data<T>() + r * half, static_cast<T>(turn), options.heads, half);
      }
    });
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
  const Angles angles(ctx, positions, s[1] / (2 * options.heads), options.base, x.value().dtype());
  Var out(rotated(x.value(), angles, options, 1));
  if (recording(ctx, {&x})) {
    ctx.tape->record("rope", {x}, {out}, [&ctx, x, out, angles, options](Tape&) {
      Tape::accumulate(ctx, x, rotated(Tape::grad_of(out), angles, options, -1));
    });
  }
  return out;
}

}  // namespace lmx
