#include "ops/layers/layer_norm.h"

#include <cmath>

#include "ops/common.h"

namespace lmx::ops {
namespace {

template <class T>
struct Stats {
  T mean, r;
};

template <class T>
LMX_SIMD Stats<T> forward_row(const T* x, const T* gain, const T* bias, T* y, T eps, int64_t d) {
  T sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < d; ++i) sum += x[i];
  const T mean = sum / static_cast<T>(d);
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < d; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const T r = T(1) / std::sqrt(squares / static_cast<T>(d) + eps);
  for (int64_t i = 0; i < d; ++i) y[i] = (x[i] - mean) * r * gain[i] + bias[i];
  return {mean, r};
}

template <class T>
LMX_SIMD void backward_row(const T* x, const T* gain, const T* dy, T* dx, Stats<T> s, int64_t d) {
  T sum = 0, projected = 0;
#pragma omp simd reduction(+ : sum, projected)
  for (int64_t i = 0; i < d; ++i) {
    const T g = dy[i] * gain[i];
    sum += g;
    projected += g * (x[i] - s.mean);
  }
  const T mean_g = sum / static_cast<T>(d), mean_gx = projected * s.r / static_cast<T>(d);
  for (int64_t i = 0; i < d; ++i) dx[i] = s.r * (dy[i] * gain[i] - mean_g - (x[i] - s.mean) * s.r * mean_gx);
}

// Adds the contribution of one row to columns [0, n) of dgain and dbias.
template <class T>
LMX_SIMD void add_row(const T* x, const T* dy, T* dgain, T* dbias, Stats<T> s, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    dgain[i] += dy[i] * ((x[i] - s.mean) * s.r);
    dbias[i] += dy[i];
  }
}

template <class T>
void forward(Context&, const LayerNormForward<T>& a) {
  parallel_for(a.rows, row_grain(a.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * a.cols;
      const Stats<T> s = forward_row<T>(a.x + at, a.gain, a.bias, a.y + at, a.eps, a.cols);
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
      const Stats<T> s{a.stats[2 * r], a.stats[2 * r + 1]};
      backward_row<T>(a.x + at, a.gain, a.dy + at, a.dx + at, s, a.cols);
    }
  });
}

template <class T>
void weights(Context&, const LayerNormWeights<T>& a) {
  parallel_for(a.cols, std::max<int64_t>(64, kGrain / std::max<int64_t>(a.rows, 1)), [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < a.rows; ++r) {
      const int64_t at = r * a.cols + begin;
      const Stats<T> s{a.stats[2 * r], a.stats[2 * r + 1]};
      add_row<T>(a.x + at, a.dy + at, a.dgain + begin, a.dbias + begin, s, end - begin);
    }
  });
}

const KernelAdder adder(Device::Kind::cpu, forward<float>, forward<double>, backward<float>, backward<double>,
                        weights<float>, weights<double>);

}  // namespace
}  // namespace lmx::ops
