// A row is read twice while it is in the cache. The first pass computes the maximum of each block; the k largest
// entries are then searched only in the few blocks that can contain one. The second pass sums the exponentials.
#include "ops/losses/top_k.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lmx/math.h"
#include "lmx/parallel.h"

namespace lmx::ops {
namespace {

constexpr int64_t kBlock = 256;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

LMX_SIMD void block_maxima(const float* x, int64_t n, float* maxima) {
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t last = first + kBlock < n ? first + kBlock : n;
    float m = kLowest;
#pragma omp simd reduction(max : m)
    for (int64_t i = first; i < last; ++i) m = x[i] > m ? x[i] : m;
    *maxima++ = m;
  }
}

// Sums in blocks; the float sum of each block is added in double.
LMX_SIMD double sum_exp(const float* x, float shift, int64_t n) {
  double sum = 0;
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t last = first + kBlock < n ? first + kBlock : n;
    float s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = first; i < last; ++i) s += fast_exp(x[i] - shift);
    sum += static_cast<double>(s);
  }
  return sum;
}

}  // namespace

TopRow top_k(const float* x, int64_t n, int64_t k, std::span<const int32_t> without) {
  std::vector<float> maxima(static_cast<size_t>((n + kBlock - 1) / kBlock));
  block_maxima(x, n, maxima.data());
  TopRow row;
  row.entries.reserve(static_cast<size_t>(std::min(k, n)));
  float least = kLowest;  // smallest of the first k entries; a larger logit replaces it
  const auto take = [&](float logit, int32_t id) {
    if (std::find(without.begin(), without.end(), id) != without.end()) return;
    if (static_cast<int64_t>(row.entries.size()) == k) row.entries.pop_back();
    // Ids ascend, so of two equal logits the one with the smaller id comes first.
    const auto at = std::upper_bound(row.entries.begin(), row.entries.end(), logit,
                                     [](float value, const Entry& e) { return value > e.logit; });
    row.entries.insert(at, {logit, id});
    if (static_cast<int64_t>(row.entries.size()) == k) least = row.entries.back().logit;
  };
  for (size_t b = 0; k > 0 && b < maxima.size(); ++b) {
    if (!(maxima[b] > least)) continue;
    const int64_t first = static_cast<int64_t>(b) * kBlock, last = std::min(first + kBlock, n);
    for (int64_t i = first; i < last; ++i)
      if (x[i] > least) take(x[i], static_cast<int32_t>(i));
  }
  const float top = *std::max_element(maxima.begin(), maxima.end());
  row.log_sum_exp = static_cast<double>(top) + std::log(sum_exp(x, top, n));
  return row;
}

std::vector<TopRow> top_rows(Context& ctx, const Tensor& logits, int64_t k, const std::vector<int32_t>& without,
                             int32_t wanted) {
  const int64_t n = logits.dim(1);
  std::vector<TopRow> rows(static_cast<size_t>(logits.dim(0)));
  if (ctx.device.kind == Device::Kind::cpu) {
    const float* x = logits.data<float>();
    parallel_for(logits.dim(0), std::max<int64_t>(1, 65536 / n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        rows[static_cast<size_t>(i)] = top_k(x + i * n, n, k, without);
        rows[static_cast<size_t>(i)].wanted = x[i * n + wanted];
      }
    });
    return rows;
  }
  const Uploaded<int32_t> left_out = ctx.upload(without);
  TopRows<float> args{logits.data<float>(), logits.dim(0), n, k, left_out.data(), left_out.size(), wanted, nullptr};
  Tensor found = ctx.empty({args.rows, args.width()}, DType::f64);
  args.found = found.data<double>();
  run_kernel(ctx, args);
  const Reading<double> read = ctx.read<double>(found);
  const double* at = read.get().data();
  for (TopRow& row : rows) {
    row.log_sum_exp = at[0];
    row.wanted = static_cast<float>(at[1]);
    for (int64_t e = 0; e < k && at[3 + 2 * e] >= 0; ++e)
      row.entries.push_back({static_cast<float>(at[2 + 2 * e]), static_cast<int32_t>(at[3 + 2 * e])});
    at += args.width();
  }
  return rows;
}

}  // namespace lmx::ops
