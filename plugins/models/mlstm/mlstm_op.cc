// The loop over time contains only two products with packed weights, one before and one after the multiplication, and
// the pointwise kernels. The rest is in lmx/ops.h.
#include "mlstm_op.h"

#include "lmx/error.h"
#include "lmx/lstm_cell.h"
#include "lmx/operand.h"
#include "mlstm_kernels.h"

namespace lmx::mlstm {
namespace {

struct Sizes {
  int64_t batch, cells;  // B, H
};

Sizes check(const Var& x, const LayerWeights& w, const std::vector<Tensor>& state) {
  LMX_CHECK(state.size() == 2, state.size(), " tensors, not h and c");
  const Tensor &h = state[0], &c = state[1];
  const auto fail = [&](const std::string& why) {
    throw UserError(str("[mlstm] x ", x.shape(), ", w_mx ", w.w_mx.shape(), ", w_mh ", w.w_mh.shape(), ", w_x ",
                        w.w_x.shape(), ", w_m ", w.w_m.shape(), ", bias ", w.bias.shape(), ", h ", h.shape(), ", c ",
                        c.shape(), ": ", why));
  };
  if (x.shape().rank() != 2 || w.w_mh.shape().rank() != 2 || h.rank() != 2) fail("x, w_mh and h are matrices");
  const int64_t cells = w.w_mh.shape()[0], input = x.shape()[1], batch = h.dim(0);
  if (w.w_mh.shape() != Shape{cells, cells}) fail("w_mh must be (H, H)");
  if (w.w_mx.shape() != Shape{cells, input}) fail(str("w_mx must be (H, E) = ", Shape{cells, input}));
  if (w.w_x.shape() != Shape{4 * cells, input}) fail(str("w_x must be (4H, E) = ", Shape{4 * cells, input}));
  if (w.w_m.shape() != Shape{4 * cells, cells} || w.bias.shape() != Shape{4 * cells})
    fail("w_m must be (4H, H), bias (4H)");
  if (h.shape() != Shape{batch, cells} || c.shape() != h.shape()) fail("state is h (B, H), c (B, H)");
  return {batch, cells};
}

// Values that a piece's forward saves for its backward. Row blocks of (n+1) tensors: block t is the value before step
// t.
struct Saved {
  // These three have the kept type (lmx/operand.h); backward replaces them by their gradients.
  Tensor gates;   // (n*B, 4H) activated gates, replaced by gradients of the pre-activations
  Tensor from_x;  // (n*B, H) W_mx x
  Tensor from_h;  // (n*B, H) W_mh h
  Tensor cells;   // ((n+1)*B, H)
  Tensor hidden;  // ((n+1)*B, H) in the compute type
  Tensor m;       // (n*B, H) their product in the compute type
};

template <class T>
class Cell final : public SequenceCell {
 public:
  Cell(LayerWeights w, const Sizes& z, double forget_bias)
      : w_(std::move(w)), z_(z), forget_bias_(static_cast<T>(forget_bias)) {}

  std::shared_ptr<void> forward(Context& ctx, const Tensor& x, std::vector<Tensor>& state, Tensor& y) const override {
    const Span span(ctx.tracer, "mlstm.forward");
    const int64_t rows = x.dim(0);
    const DType kept = kept_type<T>(ctx);
    auto saved = std::make_shared<Saved>();
    Saved& s = *saved;
    s.gates = ctx.empty({rows, 4 * z_.cells}, kept);
    s.from_x = ctx.empty({rows, z_.cells}, kept);
    s.from_h = ctx.empty({rows, z_.cells}, kept);
    s.cells = from_first(ctx, state[1], rows);
    const Tensor operand = to_compute(ctx, x);
    project(ctx, operand, w_.w_x, s.gates);
    project(ctx, operand, w_.w_mx, s.from_x);
    s.hidden = from_first(ctx, to_compute(ctx, state[0]), rows);
    s.m = ctx.empty({rows, z_.cells}, s.hidden.dtype());
    steps(ctx, s, y);
    state = {last_rows(y, z_.batch), last_rows(s.cells, z_.batch)};
    return saved;
  }

  void backward(Context& ctx, const Piece& piece, std::vector<Tensor>& dstate) const override {
    Saved& s = *static_cast<Saved*>(piece.saved);
    const StepOperands gates(ctx, s.gates, z_.batch), from_h(ctx, s.from_h, z_.batch);
    {
      const Span span(ctx.tracer, "mlstm.through_time");
      through_time(ctx, s, output_gradients(ctx, piece, dstate[0], s.gates.dtype()), dstate, gates, from_h);
    }
    const Span span(ctx.tracer, "mlstm.weight_gradients");
    const Tensor dz = gates.all(ctx), x = as_operand(ctx, piece.x), d_from_x = as_operand(ctx, s.from_x);
    add_weight_gradient(ctx, w_.w_m, dz, s.m);
    add_weight_gradient(ctx, w_.w_mh, from_h.all(ctx), s.hidden.slice(0, dz.dim(0)));
    add_weight_gradient(ctx, w_.w_x, dz, x);
    add_weight_gradient(ctx, w_.w_mx, d_from_x, x);
    add_bias_gradient(ctx, w_.bias, s.gates);
    project_back(ctx, dz, w_.w_x, piece.dx, piece.beta);
    project_back(ctx, d_from_x, w_.w_mx, piece.dx, 1.0f);
  }

 private:
  void steps(Context& ctx, Saved& s, Tensor& y) const {
    const StepMatrix w_mh = packed(ctx, w_.w_mh, true, z_.batch), w_m = packed(ctx, w_.w_m, true, z_.batch);
    const T* bias = w_.bias.value().template data<T>();
    const bool rounds = s.m.dtype() != dtype_of<T>;
    const DType kept = s.gates.dtype();
    const Tensor wide = rounds && kept == dtype_of<T> ? ctx.empty({z_.batch, z_.cells}, kept) : Tensor();
    replay_steps(ctx, [&](Context& loop) {
      for (int64_t t = 0; t < y.dim(0) / z_.batch; ++t) {
        Tensor gates = at(s.gates, t), from_x = at(s.from_x, t), from_h = at(s.from_h, t), m = at(s.m, t),
               now = at(y, t), before = at(s.cells, t), after = at(s.cells, t + 1);
        Tensor out = rounds ? wide : m;
        multiply_step(loop, w_mh, at(s.hidden, t), from_h, 0.0f);
        with_kept<T>(kept, [&](auto type) {
          using S = decltype(type);
          run_step(loop, ProductStep<T, S>{from_x.template data<S>(), from_h.template data<S>(),
                                           kept == dtype_of<T> ? out.template data<T>() : nullptr, z_.batch, z_.cells,
                                           operand_target(loop, rounds ? m : Tensor())});
        });
        if (rounds) complete_operand(loop, wide, m);
        multiply_step(loop, w_m, m, gates, 1.0f);
        const Tensor hidden = at(s.hidden, t + 1);
        with_kept<T>(kept, [&](auto type) {
          using S = decltype(type);
          run_step(loop, LstmForwardStep<T, S>{gates.template data<S>(), bias, before.template data<T>(),
                                               after.template data<T>(), now.template data<T>(), z_.batch, z_.cells,
                                               forget_bias_, operand_target(loop, hidden)});
        });
        complete_operand(loop, now, hidden);
      }
    });
  }

  // Replaces s.gates, s.from_x and s.from_h by their gradients. dh: a result of output_gradients(). of_gates, of_state:
  // the operands of s.gates and s.from_h.
  void through_time(Context& ctx, Saved& s, Tensor dh, std::vector<Tensor>& dstate, const StepOperands& of_gates,
                    const StepOperands& of_state) const {
    const StepMatrix w_mh = packed(ctx, w_.w_mh, false, z_.batch), w_m = packed(ctx, w_.w_m, false, z_.batch);
    Tensor dm = ctx.empty({z_.batch, z_.cells}, dh.dtype());
    replay_steps(ctx, [&](Context& loop) {
      for (int64_t t = dh.dim(0) / z_.batch - 1; t >= 0; --t) {
        Tensor gates = at(s.gates, t), from_x = at(s.from_x, t), from_h = at(s.from_h, t), now = at(dh, t),
               before = at(s.cells, t), after = at(s.cells, t + 1);
        with_kept<T>(gates.dtype(), [&](auto kept) {
          using S = decltype(kept);
          run_step(loop,
                   LstmBackwardStep<T, S>{gates.template data<S>(), before.template data<T>(), after.template data<T>(),
                                          now.template data<S>(), dstate[1].template data<T>(), z_.batch, z_.cells});
          multiply_step(loop, w_m, of_gates.of(loop, t), dm, 0.0f);
          run_step(loop, ProductBackwardStep<T, S>{from_x.template data<S>(), from_h.template data<S>(),
                                                   dm.template data<S>(), z_.batch, z_.cells});
        });
        Tensor earlier = t > 0 ? at(dh, t - 1) : dstate[0];
        multiply_step(loop, w_mh, of_state.of(loop, t), earlier, t > 0 ? 1.0f : 0.0f);
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
  return sequence_layer(ctx, {"mlstm.backward", cell, {w.w_mx, w.w_mh, w.w_x, w.w_m, w.bias}}, x, state,
                        options.sequence);
}

}  // namespace

Var mlstm_layer(Context& ctx, const Var& x, const LayerWeights& w, std::vector<Tensor>& state,
                const LayerOptions& options) {
  if (x.value().dtype() == DType::f64) return layer<double>(ctx, x, w, state, options);
  return layer<float>(ctx, x, w, state, options);
}

}  // namespace lmx::mlstm
