// The common part of the softmax losses: checks, logits in blocks of rows with bounded memory, the gradients that are
// computed with them, and the kernels that several losses use.
#pragma once

#include "lmx/math.h"
#include "ops/common.h"

namespace lmx::ops {

// The nlls (n) of a loss, added in ascending order.
template <class T>
struct SumOfLosses {
  static constexpr const char* kName = "sum_of_losses";
  const double *nll, *smoothed;  // smoothed (n): the losses with label smoothing; null: the nlls are the losses
  const float* weights;          // (n), or null: all 1
  double* nats;                  // (1) sum of the weighted nlls
  T* loss;                       // (1) sum of the weighted losses
  int64_t n;
};

// x *= seed / lift. The seed is read on the device, so that the host does not wait for it. x is not accessed if the
// factor is 1.
template <class T>
struct ScaleBySeed {
  static constexpr const char* kName = "scale_by_seed";
  T* x;
  const T* seed;  // (1)
  double lift;
  int64_t n;
  LMX_HD double factor() const { return static_cast<double>(*seed) / lift; }
};

LMX_HD inline double weight_of(const float* weights, int64_t i) {
  return weights ? static_cast<double>(weights[i]) : 1.0;
}

// For tensors that may be undefined.
template <class T>
const T* data_or_null(const Tensor& t) {
  return t.defined() ? t.data<T>() : nullptr;
}
template <class T>
T* data_or_null(Tensor& t) {
  return t.defined() ? t.data<T>() : nullptr;
}
inline Tensor upload_if_defined(const Context& ctx, const Tensor& t) {
  return t.defined() ? ctx.upload(t) : t;
}

// The classes of the targets, for messages: 10 classes of "w" (10, 4).
struct Classes {
  int64_t count;
  const char* tensor;
  const Shape& shape;
};
// UserErrors of a loss: targets i32 (n) in [0, V); weights f32 (n) or undefined.
void check_targets(const char* op, const Tensor& targets, const Tensor& weights, int64_t n, const Classes& classes);
// h (n, D), w (V, D), b (V) or undefined.
void check_output_layer(const char* op, const Tensor& h, const Tensor& w, const Tensor& b);
// Both.
void check_inputs(const char* op, const SoftmaxInputs& in);

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
};

// Calls visit(first, logits (rows, words)) for blocks of rows, in the value type or in the type of products. The bias
// is not added. The next block overwrites `logits`.
template <class Visit>
void for_blocks(Context& ctx, const OutputLayer& layer, bool gradients, DType type, Visit&& visit) {
  const int64_t n = layer.n(), words = layer.words();
  const int64_t rows = logit_block_rows(n, words, layer.h.dim(1), gradients);
  const Tensor buffer = ctx.empty({rows, words}, type);
  for (int64_t first = 0; first < n; first += rows) {
    const int64_t count = std::min(rows, n - first);
    Tensor logits = buffer.slice(0, count);
    gemm(ctx, layer.h.slice(first, first + count), false, layer.w, true, logits);
    visit(first, logits);
  }
}

// Gradients of h, of w and b over the first `words` words, for seed 1 and multiplied by `lift`. They are computed
// during forward, block by block, so that no logits are stored. A gradient that nothing needs is undefined.
struct OutputGradients {
  OutputGradients(const Context& ctx, const SoftmaxInputs& in, int64_t words);
  // Adds the part of rows [first, first + rows) from dz (rows, words), the lifted gradient of their logits.
  void add(Context& ctx, const OutputLayer& layer, int64_t first, const Tensor& dz);
  // Replaces the factor `lift` by the gradient of the loss.
  void scale(Context& ctx, const Tensor& seed);

  double lift;
  Tensor dh, dw, db;
};

// In half precision dz is rounded. Its entries are near 1 / words, so a power of two scales them out of the subnormal
// range.
inline double lift_for(const Context& ctx) {
  return ctx.compute == DType::f16 ? 1024.0 : 1.0;
}

// The sums over nlls f64 (n), see SumOfLosses; the loss has type `type`. `smoothed` and `weights` may be undefined.
LossValue sum_of_losses(Context& ctx, const Tensor& nll, const Tensor& smoothed, const Tensor& weights, DType type);
// x *= seed / lift
void scale_by_seed(Context& ctx, Tensor& x, const Tensor& seed, double lift);
// `t`, f32 or f64, in the other type; `t` itself if it has `type`.
Tensor converted(Context& ctx, const Tensor& t, DType type);

// full_softmax_logits() for a weight that is used in many calls of few rows. The weight is packed for such products,
// and the packed copy is kept until the weight changes. For one row, packing saves nothing unless it converts the
// weight, which is read once either way. For many rows the products are as fast without it.
Tensor repeated_logits(Context& ctx, const Tensor& h, const Var& w, const Tensor& b);

}  // namespace lmx::ops
