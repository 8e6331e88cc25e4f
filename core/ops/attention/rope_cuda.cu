#include <cmath>

#include "lmx/cuda_launch.cuh"
#include "ops/attention/rope.h"

namespace lmx::ops {
namespace {

template <class T>
struct AngleElement {
  RopeAngles<T> a;
  int64_t count() const { return a.rows * a.half; }
  __device__ void operator()(int64_t i) const {
    const auto [row, pair] = cuda::position_of(i, a.half);
    const double angle = rope_angle(a.positions[row], a.frequencies[pair]);
    a.cosines[i] = static_cast<T>(std::cos(angle));
    a.sines[i] = static_cast<T>(std::sin(angle));
  }
};

// Pair i of all heads of all rows.
template <class T>
struct PairElement {
  Rope<T> a;
  int64_t count() const { return a.rows * a.heads * a.half; }
  __device__ void operator()(int64_t i) const {
    const auto [head, pair] = cuda::position_of(i, a.half);
    const auto [row, of_row] = cuda::position_of(head, a.heads);
    const int64_t first = head * 2 * a.half + (a.interleaved ? 2 * pair : pair);
    const int64_t second = first + (a.interleaved ? 1 : a.half), angle = row * a.half + pair;
    Rotated<T> out{a.x[first], a.x[second]};
    if (of_row < a.rotated) out = rotate_pair<T>(out.first, out.second, a.cosines[angle], a.turn * a.sines[angle]);
    a.y[first] = out.first;
    a.y[second] = out.second;
    if (!a.operand.to) return;
    a.operand.store(first, out.first);
    a.operand.store(second, out.second);
  }
};

const KernelAdder adder = cuda::each_kernels<AngleElement, PairElement>();

}  // namespace
}  // namespace lmx::ops
