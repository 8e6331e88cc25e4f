// Differentiable operations of layers and losses, attention, and recurrent layers; lmx/array_ops.h has more. Each
// checks shapes, computes, and records its gradient on ctx.tape if there is one.
//
// Types: f32 and f64 values; matrix products round their inputs to ctx.compute. A 3-D input (B, T, D) is treated as
// (B*T, D) if only the last dimension matters. Shape errors are UserErrors that print every shape involved.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/context.h"
#include "lmx/kernels.h"
#include "lmx/matmul.h"

namespace lmx {

// rows of table at ids                        table (V, D), ids i32 (...) -> (..., D)       grads: table (row-sparse)
LMX_API Var embedding(Context& ctx, const Var& table, const Tensor& ids);
// x w^T + b                                   x (..., K), w (N, K), b (N) or undefined -> (..., N)   grads: x, w, b
// x may also be the rounded result of attention() or residual_sum(); so may that of feed_forward().
LMX_API Var linear(Context& ctx, const Var& x, const Var& w, const Var& b);
// How the units y of a feed-forward layer follow from their pre-activations z.
enum class Activation {
  relu,       // max(0, z) (Vaswani et al. 2017, section 3.3)
  gelu_tanh,  // as gelu_tanh() of lmx/array_ops.h
  swiglu,     // as swiglu(): the 2 F columns of z are F gates, then F values
};
struct FeedForwardWeights {
  Var up, up_bias;      // (F, K), (F); with swiglu (2 F, K), (2 F)
  Var down, down_bias;  // (N, F), (N); both biases may be undefined
  Activation activation = Activation::relu;
};
// y down^T + down_bias for the F units y = activation(x up^T + up_bias)   x (..., K) -> (..., N)   grads: all
// If ctx.training, the units of row i are dropped with probability p, as by dropout() with row_ids, which are read only
// then. In bf16 and f16, values are rounded to ctx.compute before and after the activation. UserError: p > 0, but the
// activation is not relu.
LMX_API Var feed_forward(Context& ctx, const Var& x, const FeedForwardWeights& w, double p = 0, RandomKey key = {},
                         const std::vector<uint64_t>& row_ids = {});
// The branch of a residual connection, which residual_norm() or residual_sum() adds: product + bias. On a GPU in bf16
// and f16, and in bf16 on a CPU that multiplies it faster than f32, `product` is rounded to ctx.compute, which halves
// its bytes, and `bias` is still to be added. Elsewhere, and for more than 4,096 columns, `product` is the whole branch
// in f32 or f64, and `bias` is undefined. REQUIRES: one op reads it.
struct Branch {
  Var product;    // (..., N)
  Var bias = {};  // (N)
};
// The same as linear() and feed_forward(), as branches.
LMX_API Branch linear_branch(Context& ctx, const Var& x, const Var& w, const Var& b);
LMX_API Branch feed_forward_branch(Context& ctx, const Var& x, const FeedForwardWeights& w, double p = 0,
                                   RandomKey key = {}, const std::vector<uint64_t>& row_ids = {});
struct ResidualInputs {
  Var x;               // (..., D)
  Branch branch = {};  // (..., D)
  Var gain, bias;      // (D) of the layer normalisation; without a bias, root mean square normalisation
  double eps = 1e-5;
};
// norm(x + dropout(branch)) (Vaswani et al. 2017, section 3.1)   -> (..., D)   grads: all
// If ctx.training, the branch is dropped with probability p, as by dropout() with row_ids, which are read only then.
LMX_API Var residual_norm(Context& ctx, const ResidualInputs& in, double p = 0, RandomKey key = {},
                          const std::vector<uint64_t>& row_ids = {});
// Both results of a residual connection before the next sub-layer (Xiong et al. 2020, "pre-norm"):
//   sum = x + dropout(branch), or x if the branch is undefined      norm = norm(sum), or undefined if the gain is
struct NormedSum {
  Var sum, norm;  // (..., D)
};
// If `operand` is set and products of branches of so many columns are rounded, the norm is rounded to ctx.compute, and
// exists in this type alone. REQUIRES: then one op reads it, linear() or feed_forward().   grads: all
LMX_API NormedSum residual_sum(Context& ctx, const ResidualInputs& in, bool operand, double p = 0, RandomKey key = {},
                               const std::vector<uint64_t>& row_ids = {});
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

// The inputs of a softmax loss. Losses are negative log-likelihoods in nats, summed over targets with weights; sums are
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

// B sequences in packed rows, for lmx/ops.h: sequence b has rows [begin[b], begin[b+1]).
struct LMX_API Segments {
  std::vector<int64_t> begin;  // (B + 1), from 0
  int64_t count() const { return static_cast<int64_t>(begin.size()) - 1; }
  static Segments of(std::span<const int64_t> lengths);
};

// The words with which a sampled softmax compares each target (Jean et al. 2015; Patwary 2018, section III-B).
struct Candidates {
  std::vector<int32_t> ids;                // (S) sampled words, may repeat
  std::vector<float> log_expected;         // (S) log of the expected count of each sampled id, for the logQ correction
  std::vector<float> target_log_expected;  // (n) the same for each target in its own sum (see docs/ops.md)
  bool logq = true;                        // subtract log expected counts from the logits
  bool remove_accidental_hits = true;      // a candidate equal to the target is removed from that target's sum
};
// Loss over {target} + candidates: -> (1).   grads: h, w and b (row-sparse)
LMX_API Var sampled_softmax_loss(Context& ctx, const SoftmaxInputs& in, const Candidates& candidates);

// The words that a two-stage softmax compares, and those that get gradients (Xiao 2017, section 4).
struct TwoStageRows {
  std::vector<int32_t> ids;  // V_f, each word once: first V_all, which contains every target, then V_gamma; both ascend
  int64_t trained = 0;       // words of V_all
  bool dh_forward = false;   // the gradient of h sums over V_f; otherwise over V_all
};
// Loss over V_f: -> (1).   grads: h; w and b (row-sparse: the rows of V_all)
LMX_API Var two_stage_softmax_loss(Context& ctx, const SoftmaxInputs& in, const TwoStageRows& rows);

// Gets the logits (rows, V) of the rows from number `first` on, which the caller may overwrite afterwards.
using LogitsVisitor = std::function<void(int64_t first, const Tensor& logits)>;
// Negative log-likelihood of each target (i32 (n), on the host) under the full softmax, f32 (n), computed in blocks of
// limited memory; no gradients. `visit`: called once for each block, in order; may be empty.
LMX_API Tensor full_softmax_nll(Context& ctx, const Tensor& h, const Tensor& w, const Tensor& b, const Tensor& targets,
                                const LogitsVisitor& visit = {});
// Logits of the full softmax (n, V); no gradients.
LMX_API Tensor full_softmax_logits(Context& ctx, const Tensor& h, const Tensor& w, const Tensor& b);

// Multi-head attention over packed sequences, and rotary position embeddings of its queries and keys. The rows of all
// sequences are stored one after the other without padding; `Segments` holds where each one begins.

// Returns the position of each row in its sequence, counted from 0: (rows).
LMX_API std::vector<int64_t> positions_of(const Segments& rows);

struct AttentionOptions {
  int64_t heads = 1;     // heads of the queries
  int64_t kv_heads = 0;  // heads of keys and values, a divisor of `heads`; 0: equal to `heads`
  bool causal = false;   // query i sees the keys 0 .. i of its sequence; queries and keys are the same rows
  // Added to the scaled scores before the softmax; undefined: nothing is added. -Inf hides a key. A query that sees no
  // key has the result 0. Shapes: (Q, K) for all sequences and heads, (heads, Q, K) for all sequences, or (B, heads or
  // 1, Q, K). Q and K are at least the longest sequence's queries and keys; element (i, j) is for query i and key j of
  // a sequence.
  Var bias = {};
  // In training, an attention weight is dropped with this probability. The random number depends on (key,
  // row_ids[query], head, key's position).
  double dropout = 0;
  RandomKey key = {};
  std::span<const uint64_t> row_ids = {};  // (N) identifies each row of queries; read only if weights are dropped
};

struct AttentionInputs {
  Var q;     // (N, heads size)
  Var k, v;  // (M, kv_heads size)
  Segments queries, keys;
};
// softmax(q k^T / sqrt(size) + bias) v for each head of each sequence (Vaswani et al. 2017, section 3.2). Query head h
// uses head h / (heads / kv_heads) of keys and values (grouped queries, Ainslie et al. 2023).
//   -> (N, heads size)   grads: q, k, v, bias
LMX_API Var attention(Context& ctx, const AttentionInputs& x, const AttentionOptions& options);
// The same for operands that one product computed side by side, as columns of one matrix:
//   qkv (N, (heads + 2 kv_heads) size) -> (N, heads size), each sequence attending to itself
// qkv may also be the rounded result of rope() of a projection; then the result is rounded too. REQUIRES: one op reads
// it, linear() or linear_branch().
LMX_API Var attention(Context& ctx, const Var& qkv, const Segments& rows, const AttentionOptions& options);
//   q (N, heads size), kv (M, 2 kv_heads size) -> (N, heads size)
LMX_API Var attention(Context& ctx, const Var& q, const Var& kv, const Segments& queries, const Segments& keys,
                      const AttentionOptions& options);
// A linear layer that computes operands of attention, see linear().
struct Projection {
  Var x, w, b;  // (N, K), (columns, K), and (columns) or undefined
};
// attention() of the results of linear layers. On a GPU in bf16 and f16, with at most 512 keys and heads of at most 128
// columns, q, k, v, the result and their gradients are rounded to ctx.compute, and exist in this type alone. REQUIRES:
// one op reads the result, linear() or linear_branch().   grads: those of the layers
LMX_API Var attention(Context& ctx, const Projection& qkv, const Segments& rows, const AttentionOptions& options);
LMX_API Var attention(Context& ctx, const Projection& q, const Projection& kv, const Segments& queries,
                      const Segments& keys, const AttentionOptions& options);

struct RopeOptions {
  int64_t heads = 1;
  double base = 10000;       // of the angles: the angle is position * base^(-2 i / size) for pair i of a head
  bool interleaved = false;  // pairs are elements (2 i, 2 i + 1), as in the paper; else (i, i + size / 2), as in Llama
  int64_t rotated = 0;       // only the first `rotated` heads are rotated, the others are copied; 0: all
  std::vector<double> frequencies = {};  // (size / 2): the angle is position * frequencies[i]; empty: from `base`
};
// Rotary position embedding (Su et al. 2021, section 3.2.2): each pair of a head's elements is rotated by its angle.
//   x (N, heads size), positions (N) -> (N, heads size)   grads: x
LMX_API Var rope(Context& ctx, const Var& x, std::span<const int64_t> positions, const RopeOptions& options);
// Cosines and sines of the angles of N rows, (N, size / 2) each. All layers of a model can use the same ones.
struct Rotations {
  Tensor cosines, sines;
};
// `type`: that of the values to rotate, f32 or f64.
LMX_API Rotations rotations_of(Context& ctx, std::span<const int64_t> positions, int64_t size,
                               const RopeOptions& options, DType type);
LMX_API Var rope(Context& ctx, const Var& x, const Rotations& rotations, const RopeOptions& options);
// rope() of the result of a linear layer. On a GPU in bf16 and f16, with heads of at most 128 columns, the layer's
// result is rounded to ctx.compute before and after the rotation, and exists in this type alone. REQUIRES: one op reads
// the result, attention().   grads: those of the layer
LMX_API Var rope(Context& ctx, const Projection& x, const Rotations& rotations, const RopeOptions& options);

// Recurrent layers as ops over whole sequences: the part that all cells share.
//
// A layer is one op on the tape. It is computed piece by piece; a piece is some steps of all sequences. Each piece
// needs one product for the input projections and one for the weight gradients. The loop over its time steps contains
// only the recurrent products and the pointwise kernel. The state is passed forward between pieces, its gradient
// backward. A checkpointed layer keeps only the state before each piece. Backward recomputes the rest, by the same
// calls in the same order, so its gradients are bit-equal to those of the layer without checkpointing.

// One layer's arithmetic on a piece of n steps and B sequences, time-major: row t*B + b. Values are f32 or f64.
class LMX_API SequenceCell {
 public:
  virtual ~SequenceCell();
  // Forward through x (n*B, E). `state` has tensors (B, ...); they are replaced by those after the piece and never
  // written to. Writes y (n*B, P). Returns the data that backward() needs besides x.
  virtual std::shared_ptr<void> forward(Context& ctx, const Tensor& x, std::vector<Tensor>& state, Tensor& y) const = 0;
  struct Piece {
    Tensor x;     // (n*B, E)
    void* saved;  // the result of forward(); may be written to
    Tensor dy;    // (n*B, P) gradient of y; must not be written to
    Tensor dx;    // (n*B, E) undefined if x needs no gradient; else dx = gradient + beta * dx
    float beta;
    bool last;  // no step follows: dstate is zero
  };
  // Adds to the weights' gradients. dstate: in, the gradient of the state after the piece; out, of the state before it.
  virtual void backward(Context& ctx, const Piece& piece, std::vector<Tensor>& dstate) const = 0;
};

struct SequenceOptions {
  int64_t segment = 0;  // steps of a piece; 0: as many as give 2048 rows, on a GPU without checkpointing all
  bool checkpoint = false;
};
// Steps of a piece: options.segment applied to `batch` parallel sequences of `steps` steps on `device`.
LMX_API int64_t segment_steps(const SequenceOptions& options, int64_t steps, int64_t batch, Device::Kind device);

struct SequenceLayer {
  const char* name;  // of its backward pass: "lstm.backward"
  std::shared_ptr<const SequenceCell> cell;
  std::vector<Var> weights;  // of the cell; one that the cell does not use is undefined
};

// y (T*B, P) of x (T*B, E). `state` is the state before step 0; it is replaced by the state after step T-1, detached
// from the tape.   grads: x, weights. UserError `[name] ...`: x does not have T*B rows.
LMX_API Var sequence_layer(Context& ctx, const SequenceLayer& layer, const Var& x, std::vector<Tensor>& state,
                           const SequenceOptions& options);

// w = g v / |v|, row by row (Salimans and Kingma 2016); norms are accumulated in double   v (N, K), g (N) -> (N, K)
// grads: both
LMX_API Var weight_norm(Context& ctx, const Var& v, const Var& g);

// ---- for cells

// The rows of B sequences at one step.
inline Tensor rows_at(const Tensor& t, int64_t step, int64_t batch) {
  return t.slice(step * batch, (step + 1) * batch);
}
// A copy of the last B rows: the state after a piece.
inline Tensor last_rows(const Tensor& t, int64_t batch) {
  return t.slice(t.dim(0) - batch, t.dim(0)).clone();
}
// (B + rows, N): first (B, N), then memory that is not initialised. Rows of step t are the values before that step.
LMX_API Tensor from_first(Context& ctx, const Tensor& first, int64_t rows);
// A weight that every step of a loop multiplies with, and the memory that these products need.
struct StepMatrix {
  const PackedMatrix* weight = nullptr;
  Tensor memory;  // as of PackedMatrix::operand_memory()
};
// op(w) for products of `rows` rows, to be called before the loop. The packed copy is cached until w changes.
LMX_API StepMatrix packed(Context& ctx, const Var& w, bool trans, int64_t rows);
// y (B, N) = x (B, K) op(w) + beta y: the product of one step.
LMX_API void multiply_step(Context& ctx, const StepMatrix& w, const Tensor& x, Tensor& y, float beta);
// Runs the pointwise kernel of one step.
template <class Step>
void run_step(Context& ctx, const Step& step) {
  const Span span(ctx.tracer, "sequence.pointwise");
  run_kernel(ctx, step);
}
// out (M, N) = x (M, K) w^T, x of the compute type.
LMX_API void project(Context& ctx, const Tensor& x, const Var& w, Tensor& out);
// dx (M, K) = dz (M, N) w + beta dx, dz of the compute type; does nothing if dx is undefined.
LMX_API void project_back(Context& ctx, const Tensor& dz, const Var& w, Tensor dx, float beta);
// dw (N, K) += a^T b; a (M, N), b (M, K) of the compute type.
LMX_API void add_weight_gradient(Context& ctx, const Var& w, const Tensor& a, const Tensor& b);
// db (N) += the column sums of dz (M, N), rows in ascending order.
LMX_API void add_bias_gradient(Context& ctx, const Var& bias, const Tensor& dz);
// The gradients of a piece's outputs, for a loop from the last step to the first that adds to each the part of the step
// after it: piece.dy (n*B, P) in the type `kept` (lmx/operand.h), plus dstate (B, P), the gradient of the state after
// the piece, in the last step.
LMX_API Tensor output_gradients(Context& ctx, const SequenceCell::Piece& piece, const Tensor& dstate, DType kept);

}  // namespace lmx
