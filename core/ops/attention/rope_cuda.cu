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
    const int64_t angle = cuda::position_of(head, a.heads).row * a.half + pair;
    const int64_t first = head * 2 * a.half + (a.interleaved ? 2 * pair : pair);
    const int64_t second = first + (a.interleaved ? 1 : a.half);
    const Rotated<T> out = rotate_pair<T>(a.x[first], a.x[second], a.cosines[angle], a.turn * a.sines[angle]);
    a.y[first] = out.first;
    a.y[second] = out.second;
  }
};

const KernelAdder adder = cuda::each_kernels<AngleElement, PairElement>();

}  // namespace
}  // namespace lmx::ops
