#include "optim/measure.h"

#include <algorithm>
#include <numeric>

#include "lmx/parallel.h"

namespace lmx::optim {
namespace {

double squares(const SquaredTensor& t, int64_t block) {
  if (t.values == SquaredTensor::summed) return static_cast<const double*>(t.x)[block];
  const int64_t begin = block * kSumBlock, end = t.block_end(begin);
  if (t.values == SquaredTensor::narrow)
    return sum_of_squares({static_cast<const float*>(t.x) + begin, static_cast<size_t>(end - begin)});
  const auto* x = static_cast<const double*>(t.x);
  double sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += x[i] * x[i];
  return sum;
}

void squared_blocks(Context&, const SquaredBlocks<double>& a) {
  constexpr int64_t kBlocks = 16;  // per thread, at least
  for (int64_t k = 0; k < a.count; ++k) {
    const SquaredTensor& t = a.tensors[k];
    parallel_for(t.blocks(), kBlocks, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) a.blocks[t.first_block + b] = squares(t, b);
    });
  }
}

void squared_sums(Context&, const SquaredSums<double>& a) {
  for (int64_t k = 0; k < a.count; ++k) {
    const double* own = a.blocks + a.tensors[k].first_block;
    a.sums[k] = std::accumulate(own, own + a.tensors[k].blocks(), 0.0);
  }
}

void clip_factors(Context&, const ClipFactors<double>& a) {
  a.compute();
}

constexpr int64_t kGrain = 1 << 14;  // elements per thread, at least
constexpr int64_t kBlock = 64;       // elements that stay in registers or in the first-level cache
constexpr int64_t kGroup = 32;       // number of steps after which the loop tests whether the average still changes

// Applies `times` averaging steps towards p to n elements.
template <class T>
LMX_SIMD void average(T* __restrict a, const T* __restrict p, T decay, int64_t n, int64_t times) {
  const T rest = T(1) - decay;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t size = std::min(kBlock, n - begin);
    T add[kBlock], now[kBlock], before[kBlock];
    for (int64_t i = 0; i < size; ++i) add[i] = rest * p[begin + i];
    for (int64_t i = 0; i < size; ++i) now[i] = before[i] = a[begin + i];
    for (int64_t left = times; left > 0;) {
      const int64_t group = std::min(kGroup, left);
      for (int64_t s = 0; s < group; ++s)
        for (int64_t i = 0; i < size; ++i) now[i] = average_step(now[i], add[i], decay);
      left -= group;
      if (left == 0) break;
      // Each step is monotone: if a group of steps changes nothing, the values are a fixed point.
      bool moved = false;
      for (int64_t i = 0; i < size; ++i) moved |= !(now[i] == before[i]);
      if (!moved) break;
      for (int64_t i = 0; i < size; ++i) before[i] = now[i];
    }
    for (int64_t i = 0; i < size; ++i) a[begin + i] = now[i];
  }
}

template <class T>
void average_rows(const AverageRows<T>& a) {
  const AverageSteps& s = a.steps;
  parallel_for(s.count, std::max<int64_t>(1, kGrain / s.width), [&](int64_t begin, int64_t end) {
    if (!s.rows && !s.row_times) {
      const int64_t at = begin * s.width;
      return average<T>(a.average + at, a.value + at, a.decay, (end - begin) * s.width, s.times);
    }
    for (int64_t i = begin; i < end; ++i) {
      const int64_t times = s.row_times ? s.row_times[i] : s.times;
      const int64_t at = (s.rows ? s.rows[i] : i) * s.width;
      if (times > 0) average<T>(a.average + at, a.value + at, a.decay, s.width, times);
    }
  });
}

template <class T>
void average_all(Context&, const AverageAll<T>& a) {
  for (int64_t k = 0; k < a.count; ++k) average_rows(a.averages[k]);
}

const KernelAdder adder(Device::Kind::cpu, squared_blocks, squared_sums, clip_factors, average_all<float>,
                        average_all<double>);

}  // namespace
}  // namespace lmx::optim
