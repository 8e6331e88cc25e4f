#include "ops/array/elementwise.h"
#include "ops/common.h"
#include "ops/feed_forward/feed_forward.h"

namespace lmx::ops {
namespace {

constexpr int64_t kChunk = 1 << 12;  // columns of one piece of work; a multiple of kMaskColumns

template <class S, class T>
LMX_SIMD void activate(const S* z, const float* bias, T* y, int64_t n) {
  if (bias) {
    for (int64_t i = 0; i < n; ++i) y[i] = Relu().value(static_cast<T>(z[i]) + static_cast<T>(bias[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = Relu().value(static_cast<T>(z[i]));
  }
}

template <class S, class T>
LMX_SIMD void store(const T* y, S* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<S>(y[i]);
}

template <class S>
void forward(Context&, const FeedForwardUnits<S>& a) {
  const int64_t chunks = (a.cols + kChunk - 1) / kChunk;
  parallel_for(a.rows * chunks, kChunk / std::clamp<int64_t>(a.cols, 1, kChunk), [&](int64_t begin, int64_t end) {
    Computed<S> y[kChunk];
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t row = piece / chunks, from = piece % chunks * kChunk, n = std::min(kChunk, a.cols - from);
      S* units = a.y + row * a.cols + from;
      activate(units, a.bias ? a.bias + from : nullptr, y, n);
      if (a.mask.keep_scale != 1) drop_row(y, y, a.mask, a.row_ids[row], from, n);
      store(y, units, n);
    }
  });
}

template <class S, class T>
LMX_SIMD void backward_row(const S* y, S* dy, T scale, T* sums, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T value = static_cast<T>(y[i]), dz = Relu().slope(value, value) * (static_cast<T>(dy[i]) * scale);
    dy[i] = static_cast<S>(dz);
    sums[i] += dz;
  }
}

// Threads share columns, not rows, so that the order of additions does not depend on their number.
template <class S>
void backward(Context&, const FeedForwardUnitsBackward<S>& a) {
  parallel_for(a.cols, std::max<int64_t>(64, kGrain / std::max<int64_t>(a.rows, 1)), [&](int64_t begin, int64_t end) {
    if (a.beta == 0) std::fill(a.sums + begin, a.sums + end, Computed<S>(0));
    for (int64_t r = 0; r < a.rows; ++r) {
      const int64_t at = r * a.cols + begin;
      backward_row(a.y + at, a.dy + at, a.scale, a.sums + begin, end - begin);
    }
  });
}

const KernelAdder adder(Device::Kind::cpu, forward<float>, forward<double>, forward<bfloat16>, forward<float16>,
                        backward<float>, backward<double>, backward<bfloat16>, backward<float16>);

}  // namespace
}  // namespace lmx::ops
