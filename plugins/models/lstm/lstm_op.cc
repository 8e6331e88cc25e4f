// The loop over time contains only the recurrent product, the pointwise kernel and the projection, with packed weights.
// The rest is in lmx/sequence.h.
#include "lstm_op.h"

#include "lmx/error.h"
#include "lmx/lstm_cell.h"

namespace lmx::lstm {
namespace {

struct Sizes {
  int64_t batch, input, cells, output;  // B, E, H, P
};

Sizes check(const Var& x, const LayerWeights& w, const LayerState& s) {
  const auto fail = [&](const std::string& why) {
    throw UserError(str("[lstm] x ", x.shape(), ", w_ih ", w.w_ih.shape(), ", w_hh ", w.w_hh.shape(), ", bias ",
                        w.bias.shape(), w.w_hr.defined() ? str(", w_hr ", w.w_hr.shape()) : "", ", h ", s.h.shape(),
                        ", c ", s.c.shape(), ": ", why));
  };
  if (x.shape().rank() != 2 || w.w_ih.shape().rank() != 2 || w.w_hh.shape().rank() != 2 || s.h.rank() != 2) {
    fail("x, w_ih, w_hh and h are matrices");
  }
  const int64_t gates = w.w_ih.shape()[0], batch = s.h.dim(0);
  const Sizes z{batch, x.shape()[1], gates / 4, w.w_hh.shape()[1]};
  if (gates % 4 || w.w_hh.shape()[0] != gates || w.bias.shape() != Shape{gates}) fail("gates must be 4H everywhere");
  if (w.w_ih.shape()[1] != z.input) fail("x and w_ih differ in the input size");
  if (batch == 0 || x.shape()[0] == 0 || x.shape()[0] % batch) fail("x must have T*B rows");
  if (w.w_hr.defined() ? w.w_hr.shape() != Shape{z.output, z.cells} : z.output != z.cells) fail("projection is (P, H)");
  if (s.h.shape() != Shape{batch, z.output} || s.c.shape() != Shape{batch, z.cells})
    fail("state is h (B, P), c (B, H)");
  return z;
}

// y = x op(w) + beta y, for the rows of one step.
void multiply(Context& ctx, const PackedMatrix& w, const Tensor& x, Tensor& y, float beta) {
  const Span span(ctx.tracer, "lstm.recurrent_gemm");
  w.multiply(ctx, x, y, beta);
}

template <class Step>
void pointwise(Context& ctx, const Step& step) {
  const Span span(ctx.tracer, "lstm.pointwise");
  run_kernel(ctx, step);
}

// Values that a piece's forward saves for its backward. Row blocks of (n+1) tensors: block t is the value before step
// t.
struct Saved {
  Tensor gates;   // (n*B, 4H) activated gates; backward replaces them by gradients of the pre-activations
  Tensor cells;   // ((n+1)*B, H)
  Tensor hidden;  // ((n+1)*B, P) in the compute type
  Tensor memory;  // (n*B, H) o tanh(c) in the compute type; undefined without a projection
};

template <class T>
class Cell final : public SequenceCell {
 public:
  Cell(LayerWeights w, const Sizes& z, double forget_bias)
      : w_(std::move(w)), z_(z), forget_bias_(static_cast<T>(forget_bias)) {}

  std::shared_ptr<void> forward(Context& ctx, const Tensor& x, std::vector<Tensor>& state, Tensor& y) const override {
    const Span span(ctx.tracer, "lstm.forward");
    const int64_t rows = x.dim(0);
    auto saved = std::make_shared<Saved>();
    Saved& s = *saved;
    s.gates = ctx.empty({rows, 4 * z_.cells}, dtype_of<T>);
    project(ctx, as_operand(ctx, x), w_.w_ih, s.gates);
    s.cells = ctx.empty({rows + z_.batch, z_.cells}, dtype_of<T>);
    s.cells.slice(0, z_.batch).copy_from(state[1]);
    const Tensor first = to_compute(ctx, state[0]);
    s.hidden = ctx.empty({rows + z_.batch, z_.output}, first.dtype());
    s.hidden.slice(0, z_.batch).copy_from(first);
    if (w_.w_hr.defined()) s.memory = ctx.empty({rows, z_.cells}, first.dtype());
    steps(ctx, s, y);
    state[0] = y.slice(rows - z_.batch, rows).clone();
    state[1] = s.cells.slice(rows, rows + z_.batch).clone();
    return saved;
  }

  void backward(Context& ctx, const Piece& piece, std::vector<Tensor>& dstate) const override {
    Saved& s = *static_cast<Saved*>(piece.saved);
    Tensor dh = piece.dy;
    {
      const Span span(ctx.tracer, "lstm.through_time");
      through_time(ctx, s, dh, dstate);
    }
    const Span span(ctx.tracer, "lstm.weight_gradients");
    const Tensor dz = as_operand(ctx, s.gates);
    add_weight_gradient(ctx, w_.w_hh, dz, s.hidden.slice(0, dz.dim(0)));
    if (w_.w_hr.defined()) add_weight_gradient(ctx, w_.w_hr, as_operand(ctx, dh), s.memory);
    add_weight_gradient(ctx, w_.w_ih, dz, as_operand(ctx, piece.x));
    add_bias_gradient(ctx, w_.bias, s.gates);
    project_back(ctx, dz, w_.w_ih, piece.dx, piece.beta);
  }

 private:
  void steps(Context& ctx, Saved& s, Tensor& y) const {
    const bool projected = w_.w_hr.defined();
    const PackedMatrix& recurrent = packed(ctx, w_.w_hh, true, z_.batch);
    const PackedMatrix* projection = projected ? &packed(ctx, w_.w_hr, true, z_.batch) : nullptr;
    Tensor memory = projected ? ctx.empty({z_.batch, z_.cells}, dtype_of<T>) : Tensor();
    const T* bias = w_.bias.value().template data<T>();
    for (int64_t b0 = 0; b0 < y.dim(0); b0 += z_.batch) {
      const int64_t b1 = b0 + z_.batch, b2 = b1 + z_.batch;
      Tensor gates = s.gates.slice(b0, b1), now = y.slice(b0, b1), before = s.cells.slice(b0, b1),
             after = s.cells.slice(b1, b2);
      multiply(ctx, recurrent, s.hidden.slice(b0, b1), gates, 1.0f);
      T* m = projected ? memory.template data<T>() : now.template data<T>();
      pointwise(ctx, LstmForwardStep<T>{gates.template data<T>(), bias, before.template data<T>(),
                                        after.template data<T>(), m, z_.batch, z_.cells, forget_bias_});
      if (projected) {
        to_compute(ctx, memory, s.memory.slice(b0, b1));
        multiply(ctx, *projection, s.memory.slice(b0, b1), now, 0.0f);
      }
      to_compute(ctx, now, s.hidden.slice(b1, b2));
    }
  }

  // Replaces s.gates by dz, and adds to dh (n*B, P), the gradient of every step's output, the part of the following
  // step.
  void through_time(Context& ctx, Saved& s, Tensor& dh, std::vector<Tensor>& dstate) const {
    const bool projected = w_.w_hr.defined();
    Tensor dm = projected ? ctx.empty({z_.batch, z_.cells}, dtype_of<T>) : Tensor();
    const PackedMatrix& recurrent = packed(ctx, w_.w_hh, false, z_.batch);
    const PackedMatrix* projection = projected ? &packed(ctx, w_.w_hr, false, z_.batch) : nullptr;
    add_to(dh.slice(dh.dim(0) - z_.batch, dh.dim(0)), dstate[0]);
    for (int64_t b0 = dh.dim(0) - z_.batch; b0 >= 0; b0 -= z_.batch) {
      const int64_t b1 = b0 + z_.batch, b2 = b1 + z_.batch;
      Tensor now = dh.slice(b0, b1), gates = s.gates.slice(b0, b1), before = s.cells.slice(b0, b1),
             after = s.cells.slice(b1, b2);
      if (projected) multiply(ctx, *projection, as_operand(ctx, now), dm, 0.0f);
      const T* d = projected ? dm.template data<T>() : now.template data<T>();
      pointwise(ctx, LstmBackwardStep<T>{gates.template data<T>(), before.template data<T>(), after.template data<T>(),
                                         d, dstate[1].template data<T>(), z_.batch, z_.cells});
      Tensor earlier = b0 > 0 ? dh.slice(b0 - z_.batch, b0) : dstate[0];
      multiply(ctx, recurrent, as_operand(ctx, gates), earlier, b0 > 0 ? 1.0f : 0.0f);
    }
  }

  LayerWeights w_;
  Sizes z_;
  T forget_bias_;
};

template <class T>
Var layer(Context& ctx, const Var& x, const LayerWeights& w, LayerState& state, const LayerOptions& options) {
  const auto cell = std::make_shared<Cell<T>>(w, check(x, w, state), options.forget_bias);
  std::vector<Tensor> parts{state.h, state.c};
  const Var y =
      sequence_layer(ctx, "lstm.backward", x, {w.w_ih, w.w_hh, w.bias, w.w_hr}, cell, parts, options.sequence);
  state = {parts[0], parts[1]};
  return y;
}

}  // namespace

Var lstm_layer(Context& ctx, const Var& x, const LayerWeights& w, LayerState& state, const LayerOptions& options) {
  if (x.value().dtype() == DType::f64) return layer<double>(ctx, x, w, state, options);
  return layer<float>(ctx, x, w, state, options);
}

}  // namespace lmx::lstm
