#include <cmath>

#include "lmx/quads.cuh"
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

// Pair i of all heads of all rows, or pairs i to i + 3.
template <class T, class S>
struct PairElement {
  Rope<T, S> a;
  bool aligned() const {
    return a.half % cuda::kQuad == 0 && cuda::aligned_quads(a.x, a.y) &&
           cuda::aligned_quads(a.cosines, a.sines, a.bias) && cuda::aligned_quads(a.operand);
  }
  __device__ void operator()(int64_t i) const { pairs<1>(i); }
  __device__ void quad(int64_t i) const { pairs<cuda::kQuad>(i); }

  template <int N>
  __device__ void pairs(int64_t i) const {
    const auto [head, pair] = cuda::position_of(i, a.half);
    const auto [row, of_row] = cuda::position_of(head, a.heads);
    // The N first elements and the N second ones, or 2 N neighbours in which they alternate.
    const int64_t at = head * 2 * a.half + (a.interleaved ? 2 * pair : pair), next = at + (a.interleaved ? N : a.half);
    T x[2][N];
    load(row, at, x[0]);
    load(row, next, x[1]);
    if (of_row < a.rotated) {
      T cosines[N], sines[N];
      cuda::elements_at(a.cosines + row * a.half + pair, cosines);
      cuda::elements_at(a.sines + row * a.half + pair, sines);
      for (int e = 0; e < N; ++e) {
        T& first = a.interleaved ? x[2 * e / N][2 * e % N] : x[0][e];
        T& second = a.interleaved ? x[(2 * e + 1) / N][(2 * e + 1) % N] : x[1][e];
        const Rotated<T> out = rotate_pair<T>(first, second, cosines[e], a.turn * sines[e]);
        first = out.first;
        second = out.second;
      }
    }
    put(at, x[0]);
    put(next, x[1]);
  }
  template <int N>
  __device__ void load(int64_t row, int64_t at, T (&x)[N]) const {
    S stored[N];
    cuda::elements_at(a.x + at, stored);
    T bias[N]{};
    if (a.bias) cuda::elements_at(a.bias + (at - row * a.heads * 2 * a.half), bias);
    for (int e = 0; e < N; ++e) x[e] = a.bias ? static_cast<T>(stored[e]) + bias[e] : static_cast<T>(stored[e]);
  }
  template <int N>
  __device__ void put(int64_t at, const T (&y)[N]) const {
    S stored[N];
    for (int e = 0; e < N; ++e) stored[e] = static_cast<S>(y[e]);
    cuda::put_elements(a.y + at, stored);
    if (a.operand.to) cuda::put_elements(a.operand, at, y);
  }
};

template <class T, class S = T>
void rotate(Context& ctx, const Rope<T, S>& a) {
  cuda::launch_quads(ctx, a.kName, a.rows * a.heads * a.half, PairElement<T, S>{a});
}

const KernelAdder angles = cuda::each_kernels<AngleElement>();
const KernelAdder rotations(Device::Kind::cuda, rotate<float>, rotate<double>, rotate<float, bfloat16>,
                            rotate<float, float16>);

}  // namespace
}  // namespace lmx::ops
