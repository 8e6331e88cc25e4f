#include "ops/attention/decoding.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lmx/math.h"
#include "lmx/parallel.h"

namespace lmx::ops {
namespace {

template <class T>
LMX_SIMD void score_keys(const T* q, const T* const* keys, int64_t n, int64_t size, T* scores) {
  for (int64_t j = 0; j < n; ++j) {
    T sum = 0;
    const T* key = keys[j];
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < size; ++i) sum += q[i] * key[i];
    scores[j] = sum;
  }
}

template <class T>
LMX_SIMD void add_weighted(T* __restrict y, const T* __restrict value, T weight, int64_t size) {
  for (int64_t i = 0; i < size; ++i) y[i] += weight * value[i];
}

// y (heads * size) of one query over n keys. `weights` (n) and `at` (n) are memory for the weights and the keys of a
// head.
template <class T>
void attend_row(const AttendKeys<T>& a, int64_t row, std::vector<T>& weights, std::vector<const T*>& at) {
  const T* q = a.q + row * a.stride;
  T* y = a.y + row * a.heads * a.size;
  at.assign(a.keys + a.begin[row], a.keys + a.begin[row + 1]);
  weights.resize(at.size());
  const auto n = static_cast<int64_t>(at.size());
  std::fill_n(y, a.heads * a.size, T(0));
  for (int64_t h = 0; h < a.heads; ++h) {
    score_keys<T>(q + h * a.size, at.data(), n, a.size, weights.data());
    softmax_in_place(weights.data(), T(1) / std::sqrt(static_cast<T>(a.size)), n);
    for (size_t j = 0; j < at.size(); ++j) {
      add_weighted<T>(y + h * a.size, at[j] + a.heads * a.size, weights[j], a.size);
      at[j] += a.size;
    }
  }
}

template <class T>
void attend_keys(Context&, const AttendKeys<T>& a) {
  parallel_for(a.rows, 4, [&](int64_t begin, int64_t end) {
    std::vector<T> weights;
    std::vector<const T*> at;
    for (int64_t r = begin; r < end; ++r) attend_row(a, r, weights, at);
  });
}

// Scores of the positions of a panel: q (size) times keys (size, kPanel).
template <class T>
LMX_SIMD void score_panel(const T* __restrict q, const T* __restrict keys, int64_t size, T* __restrict scores) {
  T sums[kPanel] = {};
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t t = 0; t < kPanel; ++t) sums[t] += q[i] * keys[i * kPanel + t];
  }
  for (int64_t t = 0; t < kPanel; ++t) scores[t] = sums[t];
}

// y (size) = weights (n) times values (n, size).
template <class T>
LMX_SIMD void add_values(const T* weights, const T* values, int64_t size, T* y, int64_t n) {
  for (int64_t i = 0; i < size; ++i) y[i] = 0;
  int64_t t = 0;
  for (; t + 4 <= n; t += 4) {
    const T* v = values + t * size;
    const T a = weights[t], b = weights[t + 1], c = weights[t + 2], d = weights[t + 3];
    for (int64_t i = 0; i < size; ++i)
      y[i] += (a * v[i] + b * v[i + size]) + (c * v[i + 2 * size] + d * v[i + 3 * size]);
  }
  for (; t < n; ++t) {
    for (int64_t i = 0; i < size; ++i) y[i] += weights[t] * values[t * size + i];
  }
}

// Stores the key and the value (size) of position `t`: `keys` and `values` are those of a row and head.
template <class T>
void keep(const T* key, const T* value, int64_t size, int64_t t, T* keys, T* values) {
  T* const own = keys + t / kPanel * size * kPanel + t % kPanel;
  for (int64_t i = 0; i < size; ++i) own[i * kPanel] = key[i];
  std::copy_n(value, size, values + t * size);
}

// A row's next position for one head of keys and values, and the heads of queries that use it. `weights` is memory.
template <class T>
void attend_group(const AttendText<T>& a, int64_t row, int64_t kv_head, std::vector<T>& weights) {
  const int64_t size = a.size, seen = a.length + 1, panels = (seen + kPanel - 1) / kPanel, group = a.heads / a.kv_heads;
  const T* const q = a.qkv + row * (a.heads + 2 * a.kv_heads) * size;
  const T* const key = q + (a.heads + kv_head) * size;
  const int64_t stored = (row * a.kv_heads + kv_head) * a.capacity * size;
  T *const keys = a.keys + stored, *const values = a.values + stored;
  keep(key, key + a.kv_heads * size, size, a.length, keys, values);
  for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    for (int64_t n = 0; n < panels; ++n)
      score_panel<T>(q + h * size, keys + n * size * kPanel, size, weights.data() + n * kPanel);
    softmax_in_place(weights.data(), T(1) / std::sqrt(static_cast<T>(size)), seen);
    add_values<T>(weights.data(), values, size, a.y + (row * a.heads + h) * size, seen);
  }
}

template <class T>
void attend_text(Context&, const AttendText<T>& a) {
  constexpr int64_t kGrain = 1 << 15;  // smallest number of multiply-adds for a thread
  const int64_t panels = a.length / kPanel + 1, work = 2 * (a.length + 1) * a.size * (a.heads / a.kv_heads);
  parallel_for(a.rows * a.kv_heads, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
    std::vector<T> weights(static_cast<size_t>(panels * kPanel));
    for (int64_t p = begin; p < end; ++p) attend_group(a, p / a.kv_heads, p % a.kv_heads, weights);
  });
}

template <class T>
void keep_text(Context&, const KeepText<T>& a) {
  const int64_t width = (a.heads + 2 * a.kv_heads) * a.size;
  parallel_for(a.rows * a.kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const T* key = a.qkv + p / a.kv_heads * a.length * width + (a.heads + p % a.kv_heads) * a.size;
      const int64_t stored = p * a.capacity * a.size;
      for (int64_t t = 0; t < a.length; ++t, key += width)
        keep(key, key + a.kv_heads * a.size, a.size, t, a.keys + stored, a.values + stored);
    }
  });
}

const KernelAdder adder(Device::Kind::cpu, attend_keys<float>, attend_keys<double>, attend_text<float>,
                        attend_text<double>, keep_text<float>, keep_text<double>);

}  // namespace
}  // namespace lmx::ops
