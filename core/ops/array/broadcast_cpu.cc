#include "ops/array/broadcast.h"

#include <vector>

#include "backend/convert.h"

namespace lmx::ops {
namespace {

template <class T>
LMX_SIMD void add_row(double* __restrict sums, const T* __restrict x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(x[i]);
}

template <class T>
void copy_run(T* to, const T* from, int64_t stride, int64_t n) {
  if (stride == 1) {
    std::copy_n(from, n, to);
  } else if (stride == 0) {
    std::fill_n(to, n, *from);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
  }
}

template <class T>
void copy(Context&, const CopyWalk<T>& a) {
  const Walk<1>& walk = a.walk;
  if (walk.rank == 2 && walk.stride[0][0] == 1 && walk.stride[0][1] == walk.size[0])  // the transpose of one matrix
    return transpose(a.x, a.y, walk.size[1], walk.size[0]);
  parallel_for(a.n, kGrain, [&](int64_t begin, int64_t end) {
    for_runs(walk, begin, end, [&](int64_t at, const std::array<int64_t, 1>& offsets, int64_t n) {
      copy_run(a.y + at, a.x + offsets[0], walk.step(0), n);
    });
  });
}

// A long row is summed in fixed blocks, which are divided among the threads.
template <class T>
void sum_rows(Context&, const SumRows<T>& a) {
  constexpr int64_t kBlock = 1 << 14;
  const int64_t n = a.n, blocks = std::max<int64_t>(1, (n + kBlock - 1) / kBlock);
  std::vector<double> parts(static_cast<size_t>(a.rows * blocks));
  parallel_for(a.rows * blocks, std::max<int64_t>(1, kGrain / std::min(std::max<int64_t>(n, 1), kBlock)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t r = i / blocks, first = i % blocks * kBlock;
                   parts[static_cast<size_t>(i)] = sum_of(a.x + r * n + first, std::min(kBlock, n - first));
                 }
               });
  for (int64_t r = 0; r < a.rows; ++r) {
    double s = 0;
    for (int64_t b = 0; b < blocks; ++b) s += parts[static_cast<size_t>(r * blocks + b)];
    a.y[r] = static_cast<T>(s * a.factor);
  }
}

// One thread sums each column, with the rows in ascending order.
template <class T>
void sum_columns(Context&, const SumColumns<T>& a) {
  const int64_t grain = std::max<int64_t>(64, kGrain / std::max<int64_t>(a.size, 1));
  parallel_for(a.outer * a.inner, grain, [&](int64_t begin, int64_t end) {
    std::vector<double> sums;
    for (int64_t at = begin; at < end;) {
      const int64_t o = at / a.inner, column = at % a.inner, n = std::min(a.inner - column, end - at);
      sums.assign(static_cast<size_t>(n), 0);
      for (int64_t r = 0; r < a.size; ++r) add_row<T>(sums.data(), a.x + (o * a.size + r) * a.inner + column, n);
      for (int64_t i = 0; i < n; ++i) a.y[at + i] = static_cast<T>(sums[static_cast<size_t>(i)] * a.factor);
      at += n;
    }
  });
}

const KernelAdder adder(Device::Kind::cpu, copy<float>, copy<double>, sum_rows<float>, sum_rows<double>,
                        sum_columns<float>, sum_columns<double>);

}  // namespace
}  // namespace lmx::ops
