#include "ops/common.h"
#include "ops/feed_forward/feed_forward.h"

namespace lmx::ops {
namespace {

constexpr int64_t kChunk = 1 << 12;  // columns of one piece of work; a multiple of kMaskColumns

// Element i of each part.
template <class A, bool kBiased, class S, class T>
[[gnu::always_inline]] inline void load(const S* z, const float* bias, int64_t cols, int64_t i, T (&to)[A::kParts]) {
  for (int part = 0; part < A::kParts; ++part) {
    to[part] = static_cast<T>(z[i + part * cols]);
    if constexpr (kBiased) to[part] += static_cast<T>(bias[i + part * cols]);
  }
}

template <class A, bool kBiased, class S, class T>
LMX_SIMD void activate(const S* z, const float* bias, int64_t cols, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    T parts[A::kParts];
    load<A, kBiased>(z, bias, cols, i, parts);
    y[i] = A::value(parts);
  }
}

template <class S, class T>
LMX_SIMD void store(const T* y, S* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<S>(y[i]);
}

template <class A, class S>
void forward(Context&, const FeedForwardUnits<A, S>& a) {
  const int64_t chunks = (a.cols + kChunk - 1) / kChunk;
  parallel_for(a.rows * chunks, kChunk / std::clamp<int64_t>(a.cols, 1, kChunk), [&](int64_t begin, int64_t end) {
    Computed<S> y[kChunk];
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t row = piece / chunks, from = piece % chunks * kChunk, n = std::min(kChunk, a.cols - from);
      const S* z = a.z + A::kParts * row * a.cols + from;
      a.bias ? activate<A, true>(z, a.bias + from, a.cols, y, n) : activate<A, false>(z, a.bias, a.cols, y, n);
      if (a.mask.keep_scale != 1) drop_row(y, y, a.mask, a.row_ids[row], from, n);
      store(y, a.y + row * a.cols + from, n);
    }
  });
}

// Columns whose gradients are computed at once.
constexpr int64_t kColumns = 1 << 10;

template <class A, class T>
using Gradients = T[A::kParts][kColumns];

// The gradients of n columns of a row.
template <class A, bool kBiased, class S>
LMX_SIMD void differentiate(const FeedForwardUnitsBackward<A, S>& a, int64_t row, int64_t from, int64_t n,
                            Gradients<A, Computed<S>>& dz) {
  using T = Computed<S>;
  const int64_t cols = a.cols;
  const S *kept = a.kept + A::kParts * row * cols + from, *dy = a.dy + row * cols + from;
  const float* bias = kBiased ? a.bias + from : nullptr;
  const T scale = a.scale;
  for (int64_t i = 0; i < n; ++i) {
    T parts[A::kParts], slopes[A::kParts];
    load<A, kBiased>(kept, bias, cols, i, parts);
    A::differentiate(parts, static_cast<T>(dy[i]) * scale, slopes);
    for (int part = 0; part < A::kParts; ++part) dz[part][i] = slopes[part];
  }
}

template <class T>
LMX_SIMD void add(const T* dz, T* sums, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sums[i] += dz[i];
}

// The sums read gradients from memory, so that the compiler does not fuse an addition with a product.
template <class A, class S>
void backward_row(const FeedForwardUnitsBackward<A, S>& a, int64_t row, int64_t from, int64_t n) {
  Gradients<A, Computed<S>> dz;
  a.bias ? differentiate<A, true>(a, row, from, n, dz) : differentiate<A, false>(a, row, from, n, dz);
  for (int part = 0; part < A::kParts; ++part) {
    const int64_t column = part * a.cols + from;
    store(dz[part], a.dz + A::kParts * row * a.cols + column, n);
    if (a.sums) add(dz[part], a.sums + column, n);
  }
}

// Threads share columns, not rows, so that the order of additions does not depend on their number.
template <class A, class S>
void backward(Context&, const FeedForwardUnitsBackward<A, S>& a) {
  parallel_for(a.cols, std::max<int64_t>(64, kGrain / std::max<int64_t>(a.rows, 1)), [&](int64_t begin, int64_t end) {
    for (int part = 0; a.sums && a.beta == 0 && part < A::kParts; ++part)
      std::fill(a.sums + part * a.cols + begin, a.sums + part * a.cols + end, Computed<S>(0));
    for (int64_t row = 0; row < a.rows; ++row)
      for (int64_t from = begin; from < end; from += kColumns)
        backward_row(a, row, from, std::min(kColumns, end - from));
  });
}

template <class A>
KernelAdder adder() {
  return KernelAdder(Device::Kind::cpu, forward<A, float>, forward<A, double>, forward<A, bfloat16>,
                     forward<A, float16>, backward<A, float>, backward<A, double>, backward<A, bfloat16>,
                     backward<A, float16>);
}

const KernelAdder adders[] = {adder<ReluUnits>(), adder<GeluTanhUnits>(), adder<SwigluUnits>()};

}  // namespace
}  // namespace lmx::ops
