// Layer, root mean square and weight normalisation.
#include <cmath>

#include "backend/cuda/columns.cuh"
#include "ops/layers/lane_rows.cuh"
#include "ops/layers/layer_norm.h"
#include "ops/layers/rms_norm.h"
#include "ops/layers/rows.cuh"
#include "ops/layers/weight_norm.h"

namespace lmx::ops {
namespace {

template <class T>
__device__ RowStats<T> stats_of(const T* stats, int64_t row) {
  return {stats[2 * row], stats[2 * row + 1]};
}

// y and its operand.
template <class Args, class T>
__device__ void put(const Args& a, int64_t at, T y) {
  a.y[at] = y;
  if (a.operand.to) a.operand.store(at, y);
}

template <class T>
struct LayerNormRow {
  static constexpr int kKept = 1;
  LayerNormForward<T> a;
  template <bool Warp>
  __device__ void operator()(const RowThreads<Warp>& t, int64_t row) const {
    const KeptRow<T> x = t.keep(a.x + row * a.cols, a.cols);
    const T n = static_cast<T>(a.cols);
    T sum = 0, squares = 0;
    for (int64_t i = t.begin(); i < a.cols; i += t.step()) sum += x.load(i);
    const T mean = t.sum(sum) / n;
    for (int64_t i = t.begin(); i < a.cols; i += t.step()) squares += (x.again(i) - mean) * (x.again(i) - mean);
    const RowStats<T> s{mean, T(1) / std::sqrt(t.sum(squares) / n + a.eps)};
    for (int64_t i = t.begin(); i < a.cols; i += t.step())
      put(a, row * a.cols + i, layer_norm_value(x.again(i), a.gain[i], a.bias[i], s));
    if (t.begin() != 0) return;
    a.stats[2 * row] = s.mean;
    a.stats[2 * row + 1] = s.r;
  }
};

template <class T>
struct LayerNormBackwardRow {
  static constexpr int kKept = 2;
  LayerNormBackward<T> a;
  template <bool Warp>
  __device__ void operator()(const RowThreads<Warp>& t, int64_t row) const {
    const int64_t at = row * a.cols;
    const KeptRow<T> x = t.keep(a.x + at, a.cols), dy = t.keep(a.dy + at, a.cols, 1);
    const RowStats<T> s = stats_of(a.stats, row);
    const T n = static_cast<T>(a.cols);
    T sum = 0, projected = 0;
    for (int64_t i = t.begin(); i < a.cols; i += t.step()) {
      const T g = dy.load(i) * a.gain[i];
      sum += g;
      projected += g * (x.load(i) - s.mean);
    }
    const T mean_g = t.sum(sum) / n, mean_gx = t.sum(projected) * s.r / n;
    for (int64_t i = t.begin(); i < a.cols; i += t.step())
      a.dx[at + i] = layer_norm_slope(x.again(i), a.gain[i], dy.again(i), s, mean_g, mean_gx);
  }
};

// The same two kernels for rows that fit into the registers of a warp.
template <class T>
struct LayerNormLanes {
  LayerNormForward<T> a;
  bool aligned() const { return cuda::aligned_quads(a.x, a.gain, a.bias, a.y) && cuda::aligned_quads(a.operand); }
  template <int N>
  __device__ void operator()(int64_t row) const {
    using Row = LaneRow<T, N>;
    const int64_t at = row * a.cols;
    const T n = static_cast<T>(a.cols);
    Row x;
    x.load(a.x + at, a.cols);
    T sum = 0, squares = 0;
    Row::each(a.cols, [&](int q, int e) { sum += x.quads[q].v[e]; });
    const T mean = cuda::warp_reduce(sum, cuda::AddValues{}) / n;
    Row::each(a.cols, [&](int q, int e) { squares += (x.quads[q].v[e] - mean) * (x.quads[q].v[e] - mean); });
    const RowStats<T> s{mean, T(1) / std::sqrt(cuda::warp_reduce(squares, cuda::AddValues{}) / n + a.eps)};
    x.store(a.cols, [&](int64_t column, cuda::Quad<T> y) {
      const cuda::Quad<T> gain = cuda::quad_at(a.gain + column), bias = cuda::quad_at(a.bias + column);
      LMX_UNROLL
      for (int e = 0; e < cuda::kQuad; ++e) y.v[e] = layer_norm_value(y.v[e], gain.v[e], bias.v[e], s);
      cuda::put_quad(a.y + at + column, y);
      if (a.operand.to) cuda::put_quad(a.operand, at + column, y);
    });
    if (Row::column(0) != 0) return;
    a.stats[2 * row] = s.mean;
    a.stats[2 * row + 1] = s.r;
  }
};
template <class T>
struct LayerNormBackwardLanes {
  LayerNormBackward<T> a;
  bool aligned() const { return cuda::aligned_quads(a.x, a.gain, a.dy, a.dx); }
  template <int N>
  __device__ void operator()(int64_t row) const {
    using Row = LaneRow<T, N>;
    const int64_t at = row * a.cols;
    const T n = static_cast<T>(a.cols);
    const RowStats<T> s = stats_of(a.stats, row);
    Row x, dy, gain;
    x.load(a.x + at, a.cols);
    dy.load(a.dy + at, a.cols);
    gain.load(a.gain, a.cols);
    T sum = 0, projected = 0;
    Row::each(a.cols, [&](int q, int e) {
      const T g = dy.quads[q].v[e] * gain.quads[q].v[e];
      sum += g;
      projected += g * (x.quads[q].v[e] - s.mean);
    });
    const T mean_g = cuda::warp_reduce(sum, cuda::AddValues{}) / n;
    const T mean_gx = cuda::warp_reduce(projected, cuda::AddValues{}) * s.r / n;
    Row::each(a.cols, [&](int q, int e) {
      x.quads[q].v[e] = layer_norm_slope(x.quads[q].v[e], gain.quads[q].v[e], dy.quads[q].v[e], s, mean_g, mean_gx);
    });
    x.store(a.cols, [&](int64_t column, const cuda::Quad<T>& dx) { cuda::put_quad(a.dx + at + column, dx); });
  }
};

template <class T>
struct LayerNormWeight {
  LayerNormWeights<T> a;
  template <int N>
  __device__ void add(int64_t row, int64_t column, T (&sums)[2][N]) const {
    T x[N], dy[N];
    cuda::elements_at(a.x + row * a.cols + column, x);
    cuda::elements_at(a.dy + row * a.cols + column, dy);
    const RowStats<T> s = stats_of(a.stats, row);
    for (int e = 0; e < N; ++e) {
      sums[0][e] += layer_norm_gain(x[e], dy[e], s);
      sums[1][e] += dy[e];
    }
  }
};
template <class T>
struct PutWeights {
  T *first, *second;
  __device__ void operator()(int64_t n, int64_t column, T sum) const { (n == 0 ? first : second)[column] = sum; }
};

template <class T>
struct RmsNormRow {
  static constexpr int kKept = 1;
  RmsNormForward<T> a;
  template <bool Warp>
  __device__ void operator()(const RowThreads<Warp>& t, int64_t row) const {
    const KeptRow<T> x = t.keep(a.x + row * a.cols, a.cols);
    T squares = 0;
    for (int64_t i = t.begin(); i < a.cols; i += t.step()) {
      const T value = x.load(i);
      squares += value * value;
    }
    const T r = T(1) / std::sqrt(t.sum(squares) / static_cast<T>(a.cols) + a.eps);
    for (int64_t i = t.begin(); i < a.cols; i += t.step()) put(a, row * a.cols + i, x.again(i) * r * a.gain[i]);
    if (t.begin() == 0) a.scales[row] = r;
  }
};

template <class T>
struct RmsNormBackwardRow {
  static constexpr int kKept = 2;
  RmsNormBackward<T> a;
  template <bool Warp>
  __device__ void operator()(const RowThreads<Warp>& t, int64_t row) const {
    const int64_t at = row * a.cols;
    const KeptRow<T> x = t.keep(a.x + at, a.cols), dy = t.keep(a.dy + at, a.cols, 1);
    const T r = a.scales[row];
    T projected = 0;
    for (int64_t i = t.begin(); i < a.cols; i += t.step()) projected += dy.load(i) * a.gain[i] * x.load(i);
    const T along = t.sum(projected) * r * r / static_cast<T>(a.cols);
    for (int64_t i = t.begin(); i < a.cols; i += t.step())
      a.dx[at + i] = rms_norm_slope(x.again(i), a.gain[i], dy.again(i), r, along);
  }
};

template <class T>
struct RmsNormWeight {
  RmsNormWeights<T> a;
  template <int N>
  __device__ void add(int64_t row, int64_t column, T (&sums)[1][N]) const {
    T x[N], dy[N];
    cuda::elements_at(a.x + row * a.cols + column, x);
    cuda::elements_at(a.dy + row * a.cols + column, dy);
    for (int e = 0; e < N; ++e) sums[0][e] += dy[e] * x[e] * a.scales[row];
  }
};

template <class T>
struct WeightNormRow {
  static constexpr int kKept = 1;
  WeightNormForward<T> a;
  template <bool Warp>
  __device__ void operator()(const RowThreads<Warp>& t, int64_t row) const {
    const KeptRow<T> v = t.keep(a.v + row * a.cols, a.cols);
    double squares = 0;
    for (int64_t i = t.begin(); i < a.cols; i += t.step()) {
      const double value = static_cast<double>(v.load(i));
      squares += value * value;
    }
    const double norm = std::sqrt(t.sum(squares));
    const T factor = weight_norm_factor(a.g[row], norm);
    for (int64_t i = t.begin(); i < a.cols; i += t.step()) a.w[row * a.cols + i] = factor * v.again(i);
    if (t.begin() == 0) a.norms[row] = norm;
  }
};

template <class T>
struct WeightNormBackwardRow {
  static constexpr int kKept = 2;
  WeightNormBackward<T> a;
  template <bool Warp>
  __device__ void operator()(const RowThreads<Warp>& t, int64_t row) const {
    const int64_t at = row * a.cols;
    const KeptRow<T> v = t.keep(a.v + at, a.cols), dw = t.keep(a.dw + at, a.cols, 1);
    double sum = 0;
    for (int64_t i = t.begin(); i < a.cols; i += t.step())
      sum += static_cast<double>(dw.load(i)) * static_cast<double>(v.load(i));
    const double inverse = a.norms[row] > 0 ? 1 / a.norms[row] : 0, along = t.sum(sum) * inverse;
    const T factor = static_cast<T>(static_cast<double>(a.g[row]) * inverse), slope = static_cast<T>(along * inverse);
    for (int64_t i = t.begin(); i < a.cols; i += t.step())
      a.dv[at + i] = weight_norm_slope(v.again(i), dw.again(i), factor, slope);
    if (t.begin() == 0) a.dg[row] = static_cast<T>(along);
  }
};

// Runs the job of one kernel, a struct whose only member is its arguments, for every row.
template <template <class> class Job, template <class> class Args, class T>
void by_rows(Context& ctx, const Args<T>& a) {
  launch_rows<T>(ctx, Job<T>{a});
}

template <class T>
void layer_norm_weights(Context& ctx, const LayerNormWeights<T>& a) {
  cuda::sum_columns_of<T, 2>(ctx, a.kName, {a.rows, a.cols, cuda::aligned_quads(a.x, a.dy)}, LayerNormWeight<T>{a},
                             PutWeights<T>{a.dgain, a.dbias});
}
template <class T>
void rms_norm_weights(Context& ctx, const RmsNormWeights<T>& a) {
  cuda::sum_columns_of<T, 1>(ctx, a.kName, {a.rows, a.cols, cuda::aligned_quads(a.x, a.dy)}, RmsNormWeight<T>{a},
                             PutWeights<T>{a.dgain, nullptr});
}

template <class T>
void layer_norm(Context& ctx, const LayerNormForward<T>& a) {
  if (!launch_lane_rows(ctx, LayerNormLanes<T>{a})) by_rows<LayerNormRow>(ctx, a);
}
template <class T>
void layer_norm_backward(Context& ctx, const LayerNormBackward<T>& a) {
  if (!launch_lane_rows(ctx, LayerNormBackwardLanes<T>{a})) by_rows<LayerNormBackwardRow>(ctx, a);
}

template <class T>
KernelAdder add() {
  return KernelAdder(Device::Kind::cuda, layer_norm<T>, layer_norm_backward<T>, layer_norm_weights<T>,
                     by_rows<RmsNormRow, RmsNormForward, T>, by_rows<RmsNormBackwardRow, RmsNormBackward, T>,
                     rms_norm_weights<T>, by_rows<WeightNormRow, WeightNormForward, T>,
                     by_rows<WeightNormBackwardRow, WeightNormBackward, T>);
}

const KernelAdder adders[] = {add<float>(), add<double>()};

}  // namespace
}  // namespace lmx::ops
