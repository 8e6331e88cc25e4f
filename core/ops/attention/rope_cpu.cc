#include "ops/attention/rope.h"

#include <cmath>

#include "ops/common.h"

namespace lmx::ops {
namespace {

template <bool Interleaved, class T>
LMX_SIMD void rotate_row(const Rope<T>& a, int64_t row) {
  const int64_t half = a.half;
  const T* __restrict x = a.x + row * a.heads * 2 * half;
  T* __restrict y = a.y + row * a.heads * 2 * half;
  const T *cosines = a.cosines + row * half, *sines = a.sines + row * half;
  const T turn = a.turn;
  for (int64_t h = 0; h < a.rotated; ++h, x += 2 * half, y += 2 * half) {
    for (int64_t i = 0; i < half; ++i) {
      const int64_t first = Interleaved ? 2 * i : i, second = Interleaved ? 2 * i + 1 : i + half;
      const Rotated<T> out = rotate_pair<T>(x[first], x[second], cosines[i], turn * sines[i]);
      y[first] = out.first;
      y[second] = out.second;
    }
  }
  const int64_t rest = (a.heads - a.rotated) * 2 * half;
  for (int64_t i = 0; i < rest; ++i) y[i] = x[i];
}

template <class T>
void rotate(Context&, const Rope<T>& a) {
  const auto row = a.interleaved ? rotate_row<true, T> : rotate_row<false, T>;
  parallel_for(a.rows, row_grain(a.heads * 2 * a.half), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) row(a, r);
  });
}

template <class T>
void angles(Context&, const RopeAngles<T>& a) {
  parallel_for(a.rows, row_grain(16 * a.half), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * a.half; at < end * a.half; ++at) {
      const double angle = rope_angle(a.positions[at / a.half], a.frequencies[at % a.half]);
      a.cosines[at] = static_cast<T>(std::cos(angle));
      a.sines[at] = static_cast<T>(std::sin(angle));
    }
  });
}

const KernelAdder adder(Device::Kind::cpu, angles<float>, angles<double>, rotate<float>, rotate<double>);

}  // namespace
}  // namespace lmx::ops
