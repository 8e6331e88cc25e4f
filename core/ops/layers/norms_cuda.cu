// Layer, root mean square and weight normalisation.
#include <cmath>

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

// Column i % cols of part i / cols.
template <class T>
struct LayerNormPart {
  LayerNormWeights<T> a;
  RowParts parts;
  T *dgain, *dbias;  // (parts, cols)
  __device__ void operator()(int64_t i) const {
    const int64_t column = i % a.cols, part = i / a.cols;
    T gain = 0, bias = 0;
    for (int64_t r = parts.begin(part); r < parts.end(part); ++r) {
      const T dy = a.dy[r * a.cols + column];
      gain += layer_norm_gain(a.x[r * a.cols + column], dy, stats_of(a.stats, r));
      bias += dy;
    }
    dgain[i] = gain;
    dbias[i] = bias;
  }
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
struct RmsNormPart {
  RmsNormWeights<T> a;
  RowParts parts;
  T* dgain;  // (parts, cols)
  __device__ void operator()(int64_t i) const {
    const int64_t column = i % a.cols, part = i / a.cols;
    T gain = 0;
    for (int64_t r = parts.begin(part); r < parts.end(part); ++r)
      gain += a.dy[r * a.cols + column] * a.x[r * a.cols + column] * a.scales[r];
    dgain[i] = gain;
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
  const RowParts parts(a.rows);
  Tensor sums = ctx.empty({2, parts.count, a.cols}, dtype_of<T>);
  T *dgain = sums.data<T>(), *dbias = dgain + parts.count * a.cols;
  launch_each(ctx, a.kName, parts.count * a.cols, LayerNormPart<T>{a, parts, dgain, dbias});
  launch_each(ctx, a.kName, a.cols, SumParts<T>{dgain, a.dgain, parts.count, a.cols});
  launch_each(ctx, a.kName, a.cols, SumParts<T>{dbias, a.dbias, parts.count, a.cols});
}
template <class T>
void rms_norm_weights(Context& ctx, const RmsNormWeights<T>& a) {
  const RowParts parts(a.rows);
  Tensor sums = ctx.empty({parts.count, a.cols}, dtype_of<T>);
  launch_each(ctx, a.kName, sums.numel(), RmsNormPart<T>{a, parts, sums.data<T>()});
  launch_each(ctx, a.kName, a.cols, SumParts<T>{sums.data<T>(), a.dgain, parts.count, a.cols});
}

template <class T>
KernelAdder add() {
  return KernelAdder(Device::Kind::cuda, by_rows<LayerNormRow, LayerNormForward, T>,
                     by_rows<LayerNormBackwardRow, LayerNormBackward, T>, layer_norm_weights<T>,
                     by_rows<RmsNormRow, RmsNormForward, T>, by_rows<RmsNormBackwardRow, RmsNormBackward, T>,
                     rms_norm_weights<T>, by_rows<WeightNormRow, WeightNormForward, T>,
                     by_rows<WeightNormBackwardRow, WeightNormBackward, T>);
}

const KernelAdder adders[] = {add<float>(), add<double>()};

}  // namespace
}  // namespace lmx::ops
