// The common part of the softmax losses over many words: logits in blocks of rows, with bounded memory.
#pragma once

#include "ops/common.h"
#include "ops/softmax_rows.h"

namespace lmx::ops {

inline constexpr int64_t kLogitBytes = int64_t{32} << 20;  // memory that a block may always use

// Rows of a block of logits, for `n` rows, `words` words and features of size `width`. The blocks are as equal as
// possible and have at most 32 MB. With `gradients` they may have twice the size of the weight if that is more:
// products of few rows spend their time on loading the weight and its gradient. With 32,000 words of size 512, 262 rows
// at a time reach 71, 49 and 78 GFLOP/s per core (forward, of h, of w), and 832 rows reach 90, 83 and 83.
inline int64_t logit_block_rows(int64_t n, int64_t words, int64_t width, bool gradients) {
  const int64_t row_bytes = words * static_cast<int64_t>(sizeof(float));
  const int64_t most = std::max<int64_t>({1, kLogitBytes / row_bytes, gradients ? 2 * width : 0});
  const int64_t blocks = std::max<int64_t>(1, (n + most - 1) / most);
  return std::max<int64_t>(1, (n + blocks - 1) / blocks);
}

// h (n, D) and w (words, D) in the type of matrix products; b (words), or undefined without a bias.
struct OutputLayer {
  Tensor h, w, b;
  int64_t n() const { return h.dim(0); }
  int64_t words() const { return w.dim(0); }
  DType value_type() const { return h.dtype() == DType::f64 ? DType::f64 : DType::f32; }
  template <class T>
  void add_bias_to(T* row) const {
    if (b.defined()) add_bias(row, b.data<T>(), words());
  }
};

// Calls visit(first, logits (rows, words)) for blocks of rows. The bias is not added. The next block overwrites
// `logits`.
template <class Visit>
void for_blocks(Context& ctx, const OutputLayer& layer, bool gradients, Visit&& visit) {
  const int64_t n = layer.n(), words = layer.words();
  const int64_t rows = logit_block_rows(n, words, layer.h.dim(1), gradients);
  const Tensor buffer = ctx.empty({rows, words}, layer.value_type());
  for (int64_t first = 0; first < n; first += rows) {
    const int64_t count = std::min(rows, n - first);
    Tensor logits = buffer.slice(0, count);
    gemm(ctx, layer.h.slice(first, first + count), false, layer.w, true, logits);
    visit(first, logits);
  }
}

// full_softmax_logits() for a weight that is used in many calls of few rows. The weight is packed for such products,
// and the packed copy is kept until the weight changes. For one row packing saves nothing, since the weight is read
// once either way, and for many rows the products are as fast without it.
Tensor repeated_logits(Context& ctx, const Tensor& h, const Var& w, const Tensor& b);

// In half precision dz is rounded. Its entries are near 1 / words, so a power of two scales them out of the subnormal
// range.
inline double lift_for(const Context& ctx) {
  return ctx.compute == DType::f16 ? 1024.0 : 1.0;
}

inline double weighted_sum(const std::vector<double>& nll, const Tensor& weights) {
  double sum = 0;
  for (size_t i = 0; i < nll.size(); ++i) sum += weight_of(weights, static_cast<int64_t>(i)) * nll[i];
  return sum;
}

}  // namespace lmx::ops
