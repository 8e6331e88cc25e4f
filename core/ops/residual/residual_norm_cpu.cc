// On CPUs that multiply bf16 faster than f32. Rows of up to about 2,000 columns stay in the first-level cache.
#include <vector>

#include "ops/common.h"
#include "ops/layers/layer_norm.h"
#include "ops/residual/residual_norm.h"

namespace lmx::ops {
namespace {

// Rows of a piece of work. Its sums over rows are added in ascending order, so the results do not depend on the number
// of threads.
constexpr int64_t kRows = 64;
constexpr int kSums = 3;  // over rows: those of the gain, of the bias and of the bias of the branch

// ---- rows of n columns

template <class S>
LMX_SIMD void widen_row(const S* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i]);
}
template <class S>
LMX_SIMD void round_row(const float* x, S* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = S(x[i]);
}
LMX_SIMD void add_row(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

LMX_SIMD void norm_row(const float* x, const float* gain, const float* bias, float* y, RowStats<float> stats,
                       int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = layer_norm_value(x[i], gain[i], bias ? bias[i] : 0.0f, stats);
}

// The gradient of a row s by that of its norm; adds the row's part to the sums of the gain.
struct NormRow {
  const float *gain, *dy;
  RowStats<float> stats;
  bool rms;
};
LMX_SIMD void slopes_of_row(const float* s, const NormRow& row, float* __restrict ds, float* __restrict of_gain,
                            int64_t n) {
  const auto [gain, dy, stats, rms] = row;
  float sum = 0, projected = 0;
#pragma omp simd reduction(+ : sum, projected)
  for (int64_t i = 0; i < n; ++i) {
    const float g = dy[i] * gain[i];
    sum += g;
    projected += g * (s[i] - stats.mean);
  }
  const float mean_g = rms ? 0.0f : sum / static_cast<float>(n), mean_gx = projected * stats.r / static_cast<float>(n);
  for (int64_t i = 0; i < n; ++i) {
    of_gain[i] += layer_norm_gain(s[i], dy[i], stats);
    ds[i] = layer_norm_slope(s[i], gain[i], dy[i], stats, mean_g, mean_gx);
  }
}

// ---- rows of a connection

// x + (product + bias) * mask: x itself, or computed in `room`.
template <class S>
const float* sum_of_row(const ResidualSum<S>& a, int64_t row, float* room) {
  const int64_t at = row * a.cols;
  if (!a.product) return a.x + at;
  widen_row(a.product + at, room, a.cols);
  if (a.bias) add_row(a.bias, room, a.cols);
  if (a.mask.threshold != 0) drop_row(room, room, a.mask, a.row_ids[row], 0, a.cols);
  add_row(a.x + at, room, a.cols);
  return room;
}

template <class S>
void forward_row(const ResidualNormForward<S>& a, int64_t row, float* room_s, float* room_y) {
  const int64_t n = a.sum.cols, at = row * n;
  const float* s = sum_of_row(a.sum, row, a.s ? a.s + at : room_s);
  if (!a.gain) return;
  float* y = a.y ? a.y + at : room_y;
  const RowStats<float> stats = row_stats(s, a.rms, a.eps, n);
  norm_row(s, a.gain, a.bias, y, stats, n);
  round_row(y, static_cast<S*>(a.operand.to) + at, n);
  a.stats[2 * row] = stats.mean;
  a.stats[2 * row + 1] = stats.r;
}

template <class S>
void forward(Context&, const ResidualNormForward<S>& a) {
  parallel_for(a.sum.rows, row_grain(a.sum.cols), [&](int64_t begin, int64_t end) {
    std::vector<float> s(static_cast<size_t>(a.sum.cols)), y(s);
    for (int64_t row = begin; row < end; ++row) forward_row(a, row, s.data(), y.data());
  });
}

// The memory of a thread: three rows.
struct Rows {
  std::vector<float> s, dy, ds;
  explicit Rows(int64_t n) : s(static_cast<size_t>(n)), dy(s), ds(s) {}
};

// Adds the row's parts to its three sums.
template <class S>
void backward_row(const ResidualNormBackward<S>& a, int64_t row, Rows& room, float* sums) {
  const int64_t n = a.sum.cols, at = row * n;
  float* ds = a.dx && a.beta == 0 ? a.dx + at : room.ds.data();
  if (a.dy || a.rounded_dy) {
    const float *s = a.s ? a.s + at : sum_of_row(a.sum, row, room.s.data()), *dy = a.dy ? a.dy + at : room.dy.data();
    if (!a.dy) widen_row(a.rounded_dy + at, room.dy.data(), n);
    slopes_of_row(s, {a.gain, dy, {a.stats[2 * row], a.stats[2 * row + 1]}, a.rms}, ds, sums, n);
    if (a.dbias.sums) add_row(dy, sums + n, n);
    if (a.ds) add_row(a.ds + at, ds, n);
  } else if (a.ds) {
    std::copy_n(a.ds + at, n, ds);
  } else {
    std::fill_n(ds, n, 0.0f);
  }
  if (a.dx && a.beta != 0) add_row(ds, a.dx + at, n);
  if (!a.dproduct && !a.dproduct_bias.sums) return;
  if (a.sum.mask.threshold != 0) {
    drop_row(ds, room.ds.data(), a.sum.mask, a.sum.row_ids[row], 0, n);
    ds = room.ds.data();
  }
  if (a.dproduct) round_row(ds, a.dproduct + at, n);
  if (a.dproduct_bias.sums) add_row(ds, sums + 2 * n, n);
}

// The sums of all pieces, which follow each other.
void put_sums(const SummedGradient& to, const float* sums, int64_t pieces, int64_t n) {
  if (!to.sums) return;
  if (to.beta == 0) std::fill_n(to.sums, n, 0.0f);
  for (int64_t piece = 0; piece < pieces; ++piece) add_row(sums + piece * kSums * n, to.sums, n);
}

template <class S>
void backward(Context& ctx, const ResidualNormBackward<S>& a) {
  const int64_t n = a.sum.cols, rows = a.sum.rows, pieces = (rows + kRows - 1) / kRows;
  Tensor memory = ctx.empty({pieces, kSums, n});
  if (ctx.device.counts) return;
  float* sums = memory.data<float>();
  parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    Rows room(n);
    for (int64_t piece = begin; piece < end; ++piece) {
      float* of_piece = sums + piece * kSums * n;
      std::fill_n(of_piece, kSums * n, 0.0f);
      for (int64_t row = piece * kRows; row < std::min(rows, (piece + 1) * kRows); ++row)
        backward_row(a, row, room, of_piece);
    }
  });
  const SummedGradient to[kSums] = {a.dgain, a.dbias, a.dproduct_bias};
  for (int i = 0; i < kSums; ++i) put_sums(to[i], sums + i * n, pieces, n);
}

const KernelAdder adder(Device::Kind::cpu, forward<bfloat16>, backward<bfloat16>);

}  // namespace
}  // namespace lmx::ops
