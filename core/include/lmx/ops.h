// Differentiable operations of layers and losses; lmx/array_ops.h and lmx/attention.h have more. Each checks shapes,
// computes, and records its gradient on ctx.tape if there is one.
//
// Types: f32 and f64 values; matrix products round their inputs to ctx.compute. A 3-D input (B, T, D) is treated as
// (B*T, D) if only the last dimension matters. Shape errors are UserErrors that print every shape involved.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/context.h"

namespace lmx {

// rows of table at ids                        table (V, D), ids i32 (...) -> (..., D)       grads: table (row-sparse)
LMX_API Var embedding(Context& ctx, const Var& table, const Tensor& ids);
// x w^T + b                                   x (..., K), w (N, K), b (N) or undefined -> (..., N)   grads: x, w, b
LMX_API Var linear(Context& ctx, const Var& x, const Var& w, const Var& b);
// elementwise, with broadcasting as in lmx/array_ops.h   grads: a, b
LMX_API Var add(Context& ctx, const Var& a, const Var& b);
LMX_API Var multiply(Context& ctx, const Var& a, const Var& b);
LMX_API Var scale(Context& ctx, const Var& x, double factor);
LMX_API Var tanh(Context& ctx, const Var& x);
LMX_API Var sigmoid(Context& ctx, const Var& x);
LMX_API Var relu(Context& ctx, const Var& x);
// sum of all elements -> (1)
LMX_API Var sum(Context& ctx, const Var& x);
// same elements, other shape
LMX_API Var reshape(Context& ctx, const Var& x, Shape shape);
// y = x * mask / (1 - p); identity if !ctx.training or p == 0       grads: x
// Element (i, j) of x (..., D) is kept or dropped depending on (key, row_ids[i], j) only. If ids identify rows by
// global slot and time, the masks do not depend on how a batch is divided into ranks and micro-batches.
LMX_API Var dropout(Context& ctx, const Var& x, double p, RandomKey key, const std::vector<uint64_t>& row_ids);
// The same by (key, element index): for values that are equal on all ranks, such as a weight.
LMX_API Var dropout(Context& ctx, const Var& x, double p, RandomKey key);
// (x - mean) / sqrt(var + eps) * gain + bias over the last dimension (Ba et al. 2016)   gain, bias (D)   grads: all
// three
LMX_API Var layer_norm(Context& ctx, const Var& x, const Var& gain, const Var& bias, double eps = 1e-5);

// What a softmax loss reads. Losses are negative log-likelihoods in nats, summed over targets with weights; sums are
// accumulated in double.
struct SoftmaxInputs {
  Var h;                // (n, D) features
  Var w;                // (V, D) the output layer: logits h w^T + b
  Var b = {};           // (V), or undefined
  Tensor targets;       // i32 (n), on the host
  Tensor weights = {};  // f32 (n), on the host, or undefined: all 1
};
struct LossValue {
  Var loss;     // (1) start of backward: summed nats, with label smoothing if the loss uses it
  Tensor nats;  // f64 (1), on the device: summed negative log-likelihood of the targets
};

// The negative log-likelihood from logits (n, V): -> (1). targets and weights as in SoftmaxInputs.   grads: logits
LMX_API Var cross_entropy(Context& ctx, const Var& logits, const Tensor& targets, const Tensor& weights);
// The same from hidden states, without storing all n x V logits. With label smoothing (Szegedy et al. 2016) the loss is
// (1 - e) nll(target) + e / V sum_v nll(v), e = `smoothing`, as in PyTorch's cross_entropy.   grads: h, w (dense), b
LMX_API LossValue full_softmax_loss(Context& ctx, const SoftmaxInputs& in, double smoothing = 0);

// B sequences in packed rows, for lmx/attention.h: sequence b has rows [begin[b], begin[b+1]).
struct LMX_API Segments {
  std::vector<int64_t> begin;  // (B + 1), from 0
  int64_t count() const { return static_cast<int64_t>(begin.size()) - 1; }
  static Segments of(std::span<const int64_t> lengths);
};

// The words with which a sampled softmax compares each target (Jean et al. 2015; FACTS A1.2).
struct Candidates {
  std::vector<int32_t> ids;                // (S) sampled words, may repeat
  std::vector<float> log_expected;         // (S) log of the expected count of each sampled id, for the logQ correction
  std::vector<float> target_log_expected;  // (n) the same for each target in its own sum (see docs/ops.md)
  bool logq = true;                        // subtract log expected counts from the logits
  bool remove_accidental_hits = true;      // a candidate equal to the target is removed from that target's sum
};
// Loss over {target} + candidates: -> (1).   grads: h, w and b (row-sparse)
LMX_API Var sampled_softmax_loss(Context& ctx, const SoftmaxInputs& in, const Candidates& candidates);

// The words that a two-stage softmax compares, and those that get gradients (Xiao 2017, section 4; FACTS A2.3).
struct TwoStageRows {
  std::vector<int32_t> ids;  // V_f, each word once: first V_all, which contains every target, then V_gamma; both ascend
  int64_t trained = 0;       // words of V_all
  bool dh_forward = false;   // the gradient of h sums over V_f; otherwise over V_all
};
// Loss over V_f: -> (1).   grads: h; w and b (row-sparse: the rows of V_all)
LMX_API Var two_stage_softmax_loss(Context& ctx, const SoftmaxInputs& in, const TwoStageRows& rows);

// Negative log-likelihood of each target (i32 (n), on the host) under the full softmax, f32 (n), computed in blocks of
// limited memory; no gradients.
LMX_API Tensor full_softmax_nll(Context& ctx, const Tensor& h, const Tensor& w, const Tensor& b, const Tensor& targets);
// Logits of the full softmax (n, V); no gradients.
LMX_API Tensor full_softmax_logits(Context& ctx, const Tensor& h, const Tensor& w, const Tensor& b);

}  // namespace lmx
