#include "ops/layers/layer_norm.h"

#include <cmath>

#include "ops/common.h"

namespace lmx::ops {
namespace {

template <class T>
LMX_SIMD RowStats<T> stats_of(const T* x, bool rms, T eps, int64_t n) {
  T sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  const T mean = rms ? T(0) : sum / static_cast<T>(n);
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  return {mean, T(1) / std::sqrt(squares / static_cast<T>(n) + eps)};
}

template <class T>
LMX_SIMD void forward_row(const T* x, const T* gain, const T* bias, T* y, RowStats<T> s, int64_t d) {
  for (int64_t i = 0; i < d; ++i) y[i] = layer_norm_value(x[i], gain[i], bias[i], s);
}

template <class T>
LMX_SIMD void backward_row(const T* x, const T* gain, const T* dy, T* dx, RowStats<T> s, int64_t d) {
  T sum = 0, projected = 0;
#pragma omp simd reduction(+ : sum, projected)
  for (int64_t i = 0; i < d; ++i) {
    const T g = dy[i] * gain[i];
    sum += g;
    projected += g * (x[i] - s.mean);
  }
  const T mean_g = sum / static_cast<T>(d), mean_gx = projected * s.r / static_cast<T>(d);
  for (int64_t i = 0; i < d; ++i) dx[i] = layer_norm_slope(x[i], gain[i], dy[i], s, mean_g, mean_gx);
}

// Adds the contribution of one row to columns [0, n) of dgain and dbias.
template <class T>
LMX_SIMD void add_row(const T* x, const T* dy, T* dgain, T* dbias, RowStats<T> s, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    dgain[i] += layer_norm_gain(x[i], dy[i], s);
    dbias[i] += dy[i];
  }
}

template <class T>
void forward(Context&, const LayerNormForward<T>& a) {
  parallel_for(a.rows, row_grain(a.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * a.cols;
      const RowStats<T> s = stats_of<T>(a.x + at, false, a.eps, a.cols);
      forward_row<T>(a.x + at, a.gain, a.bias, a.y + at, s, a.cols);
      a.stats[2 * r] = s.mean;
      a.stats[2 * r + 1] = s.r;
    }
  });
}

template <class T>
void backward(Context&, const LayerNormBackward<T>& a) {
  parallel_for(a.rows, row_grain(a.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * a.cols;
      const RowStats<T> s{a.stats[2 * r], a.stats[2 * r + 1]};
      backward_row<T>(a.x + at, a.gain, a.dy + at, a.dx + at, s, a.cols);
    }
  });
}

template <class T>
void weights(Context&, const LayerNormWeights<T>& a) {
  parallel_for(a.cols, std::max<int64_t>(64, kGrain / std::max<int64_t>(a.rows, 1)), [&](int64_t begin, int64_t end) {
    for (T* sums : {a.dgain, a.dbias}) std::fill(sums + begin, sums + end, T(0));
    for (int64_t r = 0; r < a.rows; ++r) {
      const int64_t at = r * a.cols + begin;
      const RowStats<T> s{a.stats[2 * r], a.stats[2 * r + 1]};
      add_row<T>(a.x + at, a.dy + at, a.dgain + begin, a.dbias + begin, s, end - begin);
    }
  });
}

const KernelAdder adder(Device::Kind::cpu, forward<float>, forward<double>, backward<float>, backward<double>,
                        weights<float>, weights<double>);

}  // namespace

RowStats<float> row_stats(const float* x, bool rms, float eps, int64_t n) {
  return stats_of(x, rms, eps, n);
}

}  // namespace lmx::ops
