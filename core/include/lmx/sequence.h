// Recurrent layers as ops over whole sequences: what they share.
//
// A layer is one op on the tape. It runs piece by piece, a piece being some steps of all sequences: input projections
// and weight gradients are one product a piece, inside a piece's loop over time stand only the recurrent products and
// the pointwise kernel. Between pieces go the state forward and its gradient backward. A checkpointed layer keeps the
// state before each piece alone and makes the rest again when backward comes to it, by the same calls in the same
// order: its gradients are those of the plain one, bit for bit.
#pragma once

#include <memory>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/context.h"
#include "lmx/matmul.h"

namespace lmx {

// One layer's arithmetic on a piece of n steps and B sequences, time-major: row t*B + b. Values are f32, or f64.
class LMX_API SequenceCell {
 public:
  virtual ~SequenceCell();
  // Through x (n*B, E) from `state`, whose tensors (B, ...) are replaced by those after the piece, never written to.
  // Writes y (n*B, P). Returns what backward() needs beside x.
  virtual std::shared_ptr<void> forward(Context& ctx, const Tensor& x, std::vector<Tensor>& state, Tensor& y) const = 0;
  struct Piece {
    Tensor x;     // (n*B, E)
    void* saved;  // what forward() returned; may be written to
    Tensor dy;    // (n*B, P) gradient of y; may be written to
    Tensor dx;    // (n*B, E) undefined where x needs no gradient; else dx = gradient + beta * dx
    float beta;
  };
  // Adds to the weights' gradients. dstate: of the state after the piece in, of the state before it out.
  virtual void backward(Context& ctx, const Piece& piece, std::vector<Tensor>& dstate) const = 0;
};

struct SequenceOptions {
  int64_t segment = 0;  // steps of a piece; 0: as many as make 2048 rows
  bool checkpoint = false;
};
// Steps of a piece: what options.segment means for sequences of `steps` steps, `batch` side by side.
LMX_API int64_t segment_steps(const SequenceOptions& options, int64_t steps, int64_t batch);

// y (T*B, P) of x (T*B, E), the cell's weights being `weights`. `state` comes in as it stood before step 0 and leaves
// as after step T-1, detached.   grads: x, weights. UserError `[name] ...`: x is not T*B rows.
LMX_API Var sequence_layer(Context& ctx, const char* name, const Var& x, const std::vector<Var>& weights,
                           std::shared_ptr<const SequenceCell> cell, std::vector<Tensor>& state,
                           const SequenceOptions& options);

// w = g v / |v|, row by row (Salimans and Kingma 2016); norms summed in double   v (N, K), g (N) -> (N, K)   grads:
// both
LMX_API Var weight_norm(Context& ctx, const Var& v, const Var& g);

// For cells. op(w) laid out for products of `rows` rows, kept until w changes.
LMX_API const PackedMatrix& packed(Context& ctx, const Var& w, bool trans, int64_t rows);
// out (M, N) = x (M, K) w^T, x of the compute type.
LMX_API void project(Context& ctx, const Tensor& x, const Var& w, Tensor& out);
// dx (M, K) = dz (M, N) w + beta dx, dz of the compute type; nothing where dx is undefined.
LMX_API void project_back(Context& ctx, const Tensor& dz, const Var& w, Tensor dx, float beta);
// dw (N, K) += a^T b; a (M, N), b (M, K) of the compute type.
LMX_API void add_weight_gradient(Context& ctx, const Var& w, const Tensor& a, const Tensor& b);
// db (N) += the column sums of dz (M, N), rows in ascending order.
LMX_API void add_bias_gradient(Context& ctx, const Var& bias, const Tensor& dz);
// to += from, elementwise: a gradient that comes from the piece after.
LMX_API void add_to(Tensor to, const Tensor& from);

}  // namespace lmx
