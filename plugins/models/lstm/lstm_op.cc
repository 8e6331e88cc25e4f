// The loop over time contains only the recurrent product, the pointwise kernel and the projection, with packed weights.
// The rest is in lmx/ops.h.
#include "lstm_op.h"

#include "lmx/error.h"
#include "lmx/lstm_cell.h"
#include "lmx/operand.h"

namespace lmx::lstm {
namespace {

struct Sizes {
  int64_t batch, input, cells, output;  // B, E, H, P
};

Sizes check(const Var& x, const LayerWeights& w, const std::vector<Tensor>& state) {
  LMX_CHECK(state.size() == 2, state.size(), " tensors, not h and c");
  const Tensor &h = state[0], &c = state[1];
  const auto fail = [&](const std::string& why) {
    throw UserError(str("[lstm] x ", x.shape(), ", w_ih ", w.w_ih.shape(), ", w_hh ", w.w_hh.shape(), ", bias ",
                        w.bias.shape(), w.w_hr.defined() ? str(", w_hr ", w.w_hr.shape()) : "", ", h ", h.shape(),
                        ", c ", c.shape(), ": ", why));
  };
  if (x.shape().rank() != 2 || w.w_ih.shape().rank() != 2 || w.w_hh.shape().rank() != 2 || h.rank() != 2) {
    fail("x, w_ih, w_hh and h are matrices");
  }
  const int64_t gates = w.w_ih.shape()[0], batch = h.dim(0);
  const Sizes z{batch, x.shape()[1], gates / 4, w.w_hh.shape()[1]};
  if (gates % 4 || w.w_hh.shape()[0] != gates || w.bias.shape() != Shape{gates}) fail("gates must be 4H everywhere");
  if (w.w_ih.shape()[1] != z.input) fail("x and w_ih differ in the input size");
  if (batch == 0 || x.shape()[0] == 0 || x.shape()[0] % batch) fail("x must have T*B rows");
  if (w.w_hr.defined() ? w.w_hr.shape() != Shape{z.output, z.cells} : z.output != z.cells) fail("projection is (P, H)");
  if (h.shape() != Shape{batch, z.output} || c.shape() != Shape{batch, z.cells}) fail("state is h (B, P), c (B, H)");
  return z;
}

// Values that a piece's forward saves for its backward. Row blocks of (n+1) tensors: block t is the value before step
// t.
struct Saved {
  Tensor gates;   // (n*B, 4H) of the kept type: activated gates, which backward replaces by those of pre-activations
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
    s.gates = ctx.empty({rows, 4 * z_.cells}, kept_type<T>(ctx));
    project(ctx, as_operand(ctx, x), w_.w_ih, s.gates);
    s.cells = from_first(ctx, state[1], rows);
    s.hidden = from_first(ctx, to_compute(ctx, state[0]), rows);
    if (w_.w_hr.defined()) s.memory = ctx.empty({rows, z_.cells}, s.hidden.dtype());
    steps(ctx, s, y);
    state = {last_rows(y, z_.batch), last_rows(s.cells, z_.batch)};
    return saved;
  }

  void backward(Context& ctx, const Piece& piece, std::vector<Tensor>& dstate) const override {
    Saved& s = *static_cast<Saved*>(piece.saved);
    Tensor dh = output_gradients(ctx, piece, dstate[0], s.gates.dtype());
    const StepOperands gates(ctx, s.gates, z_.batch);
    {
      const Span span(ctx.tracer, "lstm.through_time");
      through_time(ctx, s, dh, dstate, gates);
    }
    const Span span(ctx.tracer, "lstm.weight_gradients");
    const Tensor dz = gates.all(ctx);
    add_weight_gradient(ctx, w_.w_hh, dz, s.hidden.slice(0, dz.dim(0)));
    if (w_.w_hr.defined()) add_weight_gradient(ctx, w_.w_hr, as_operand(ctx, dh), s.memory);
    add_weight_gradient(ctx, w_.w_ih, dz, as_operand(ctx, piece.x));
    add_bias_gradient(ctx, w_.bias, s.gates);
    project_back(ctx, dz, w_.w_ih, piece.dx, piece.beta);
  }

 private:
  void steps(Context& ctx, Saved& s, Tensor& y) const {
    const bool projected = w_.w_hr.defined();
    const StepMatrix recurrent = packed(ctx, w_.w_hh, true, z_.batch);
    const StepMatrix projection = projected ? packed(ctx, w_.w_hr, true, z_.batch) : StepMatrix();
    const bool stores = s.gates.dtype() != dtype_of<T>;  // the projection's products write operands only
    Tensor memory = projected && !stores ? ctx.empty({z_.batch, z_.cells}, dtype_of<T>) : Tensor();
    const T* bias = w_.bias.value().template data<T>();
    replay_steps(ctx, [&](Context& loop) {
      for (int64_t t = 0; t < y.dim(0) / z_.batch; ++t) {
        Tensor gates = at(s.gates, t), now = at(y, t), before = at(s.cells, t), after = at(s.cells, t + 1);
        Tensor m = projected ? memory : now;
        multiply_step(loop, recurrent, at(s.hidden, t), gates, 1.0f);
        const Tensor operand = projected ? at(s.memory, t) : at(s.hidden, t + 1);
        with_kept<T>(gates.dtype(), [&](auto kept) {
          using S = decltype(kept);
          run_step(loop, LstmForwardStep<T, S>{gates.template data<S>(), bias, before.template data<T>(),
                                               after.template data<T>(), m.defined() ? m.template data<T>() : nullptr,
                                               z_.batch, z_.cells, forget_bias_, operand_target(loop, operand)});
        });
        if (m.defined()) complete_operand(loop, m, operand);
        if (!projected) continue;
        Tensor next = at(s.hidden, t + 1);
        multiply_step(loop, projection, operand, stores ? next : now, 0.0f);
        if (!stores) to_compute(loop, now, next);
      }
    });
    if (projected && stores) widen(ctx, s.hidden.slice(z_.batch, s.hidden.dim(0)), y);
  }

  // Replaces s.gates by dz, and adds to dh (n*B, P), a result of output_gradients(), the part of the following step.
  // of_gates: the operands of s.gates.
  void through_time(Context& ctx, Saved& s, Tensor& dh, std::vector<Tensor>& dstate,
                    const StepOperands& of_gates) const {
    const bool projected = w_.w_hr.defined();
    Tensor dm = projected ? ctx.empty({z_.batch, z_.cells}, dh.dtype()) : Tensor();
    const StepMatrix recurrent = packed(ctx, w_.w_hh, false, z_.batch);
    const StepMatrix projection = projected ? packed(ctx, w_.w_hr, false, z_.batch) : StepMatrix();
    const Tensor of_output = projected ? operand_memory(ctx, at(dh, 0)) : Tensor();
    replay_steps(ctx, [&](Context& loop) {
      for (int64_t t = dh.dim(0) / z_.batch - 1; t >= 0; --t) {
        Tensor now = at(dh, t), gates = at(s.gates, t), before = at(s.cells, t), after = at(s.cells, t + 1);
        if (projected) multiply_step(loop, projection, as_operand(loop, now, of_output), dm, 0.0f);
        const Tensor& d = projected ? dm : now;
        with_kept<T>(gates.dtype(), [&](auto kept) {
          using S = decltype(kept);
          run_step(loop,
                   LstmBackwardStep<T, S>{gates.template data<S>(), before.template data<T>(), after.template data<T>(),
                                          d.template data<S>(), dstate[1].template data<T>(), z_.batch, z_.cells});
        });
        Tensor earlier = t > 0 ? at(dh, t - 1) : dstate[0];
        multiply_step(loop, recurrent, of_gates.of(loop, t), earlier, t > 0 ? 1.0f : 0.0f);
      }
    });
  }

  Tensor at(const Tensor& t, int64_t step) const { return rows_at(t, step, z_.batch); }

  LayerWeights w_;
  Sizes z_;
  T forget_bias_;
};

template <class T>
Var layer(Context& ctx, const Var& x, const LayerWeights& w, std::vector<Tensor>& state, const LayerOptions& options) {
  const auto cell = std::make_shared<Cell<T>>(w, check(x, w, state), options.forget_bias);
  return sequence_layer(ctx, {"lstm.backward", cell, {w.w_ih, w.w_hh, w.bias, w.w_hr}}, x, state, options.sequence);
}

}  // namespace

Var lstm_layer(Context& ctx, const Var& x, const LayerWeights& w, std::vector<Tensor>& state,
               const LayerOptions& options) {
  if (x.value().dtype() == DType::f64) return layer<double>(ctx, x, w, state, options);
  return layer<float>(ctx, x, w, state, options);
}

}  // namespace lmx::lstm
