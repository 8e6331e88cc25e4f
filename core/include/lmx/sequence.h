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

// y (T*B, P) of x (T*B, E); `weights` are the cell's weights. `state` is the state before step 0; it is replaced by the
// state after step T-1, detached from the tape.   grads: x, weights. UserError `[name] ...`: x does not have T*B rows.
LMX_API Var sequence_layer(Context& ctx, const char* name, const Var& x, const std::vector<Var>& weights,
                           std::shared_ptr<const SequenceCell> cell, std::vector<Tensor>& state,
                           const SequenceOptions& options);

// w = g v / |v|, row by row (Salimans and Kingma 2016); norms are accumulated in double   v (N, K), g (N) -> (N, K)
// grads: both
LMX_API Var weight_norm(Context& ctx, const Var& v, const Var& g);

// For cells: op(w), packed for products of `rows` rows and cached until w changes.
LMX_API const PackedMatrix& packed(Context& ctx, const Var& w, bool trans, int64_t rows);
// out (M, N) = x (M, K) w^T, x of the compute type.
LMX_API void project(Context& ctx, const Tensor& x, const Var& w, Tensor& out);
// dx (M, K) = dz (M, N) w + beta dx, dz of the compute type; does nothing if dx is undefined.
LMX_API void project_back(Context& ctx, const Tensor& dz, const Var& w, Tensor dx, float beta);
// dw (N, K) += a^T b; a (M, N), b (M, K) of the compute type.
LMX_API void add_weight_gradient(Context& ctx, const Var& w, const Tensor& a, const Tensor& b);
// db (N) += the column sums of dz (M, N), rows in ascending order.
LMX_API void add_bias_gradient(Context& ctx, const Var& bias, const Tensor& dz);
// to += from, elementwise: adds the gradient from the following piece.
LMX_API void add_to(Tensor to, const Tensor& from);

}  // namespace lmx
