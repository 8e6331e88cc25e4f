// Recurrent layers as ops over whole sequences: the part that all cells share.
//
// A layer is one op on the tape. It is computed piece by piece; a piece is some steps of all sequences. Each piece
// needs one product for the input projections and one for the weight gradients. The loop over its time steps contains
// only the recurrent products and the pointwise kernel. The state is passed forward between pieces, its gradient
// backward. A checkpointed layer keeps only the state before each piece. Backward recomputes the rest, by the same
// calls in the same order, so its gradients are bit-equal to those of the layer without checkpointing.
#pragma once

#include <memory>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/context.h"
#include "lmx/kernels.h"
#include "lmx/matmul.h"

namespace lmx {

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
    Tensor dy;    // (n*B, P) gradient of y; may be written to
    Tensor dx;    // (n*B, E) undefined if x needs no gradient; else dx = gradient + beta * dx
    float beta;
  };
  // Adds to the weights' gradients. dstate: in, the gradient of the state after the piece; out, of the state before it.
  virtual void backward(Context& ctx, const Piece& piece, std::vector<Tensor>& dstate) const = 0;
};

struct SequenceOptions {
  int64_t segment = 0;  // steps of a piece; 0: as many as give 2048 rows
  bool checkpoint = false;
};
// Steps of a piece: options.segment applied to `batch` parallel sequences of `steps` steps.
LMX_API int64_t segment_steps(const SequenceOptions& options, int64_t steps, int64_t batch);

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
// op(w), packed for products of `rows` rows and cached until w changes.
LMX_API const PackedMatrix& packed(Context& ctx, const Var& w, bool trans, int64_t rows);
// y (B, N) = x (B, K) op(w) + beta y: the product of one step.
LMX_API void multiply_step(Context& ctx, const PackedMatrix& w, const Tensor& x, Tensor& y, float beta);
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
// to += from, elementwise: adds the gradient from the following piece.
LMX_API void add_to(Context& ctx, Tensor to, const Tensor& from);

}  // namespace lmx
