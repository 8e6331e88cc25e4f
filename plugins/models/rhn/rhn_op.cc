// The loop over time contains only a product with packed weights and a pointwise kernel for each highway layer. The
// rest is in lmx/ops.h.
#include "rhn_op.h"

#include "lmx/error.h"
#include "rhn_kernels.h"

namespace lmx::rhn {
namespace {

struct Sizes {
  int64_t batch, cells, gates, depth;  // B, H, G H, L
};

Sizes check(const Var& x, const LayerWeights& w, const std::vector<Tensor>& state, int64_t blocks) {
  LMX_CHECK(state.size() == 1, state.size(), " tensors, not s");
  const Tensor& s = state[0];
  const auto fail = [&](const std::string& why) {
    throw UserError(str("[rhn] x ", x.shape(), ", w_x ", w.w_x.shape(), ", ", w.w_s.size(), " of w_s, ", w.bias.size(),
                        " of bias, s ", s.shape(), ": ", why));
  };
  if (x.shape().rank() != 2 || s.rank() != 2) fail("x and s are matrices");
  const int64_t cells = s.dim(1), gates = blocks * cells;
  if (w.w_s.empty() || w.bias.size() != w.w_s.size()) fail("each of at least one highway layer has w_s and bias");
  if (w.w_x.shape() != Shape{gates, x.shape()[1]}) fail(str("w_x must be (G H, E) = ", Shape{gates, x.shape()[1]}));
  for (size_t l = 0; l < w.w_s.size(); ++l) {
    if (w.w_s[l].shape() != Shape{gates, cells} || w.bias[l].shape() != Shape{gates})
      fail(str("w_s ", l, " is ", w.w_s[l].shape(), " and bias ", w.bias[l].shape(), ", not ", Shape{gates, cells},
               " and ", Shape{gates}));
  }
  return {s.dim(0), cells, gates, static_cast<int64_t>(w.w_s.size())};
}

// Values of one highway layer that a piece's forward saves for its backward.
struct Highway {
  // (n*B, G H) of the kept type: activations, which backward replaces by gradients of the pre-activations.
  Tensor gates;
  // (n*B, H) the state before the layer. In the first layer ((n+1)*B, H): block t+1 is the state after step t.
  Tensor before;
  Tensor operand;  // `before` in the compute type (the same tensor if that is the value type)
};

struct Saved {
  std::vector<Highway> layers;
};

template <class Gates, class T>
class Cell final : public SequenceCell {
 public:
  Cell(LayerWeights w, const Sizes& z, double transform_bias)
      : w_(std::move(w)), z_(z), transform_bias_(static_cast<T>(transform_bias)) {}

  std::shared_ptr<void> forward(Context& ctx, const Tensor& x, std::vector<Tensor>& state, Tensor& y) const override {
    const Span span(ctx.tracer, "rhn.forward");
    const int64_t rows = x.dim(0), b = z_.batch;
    auto saved = std::make_shared<Saved>();
    const DType type = to_compute(ctx, state[0]).dtype(), kept = kept_type<T>(ctx);
    for (int64_t l = 0; l < z_.depth; ++l) {
      Highway layer;
      layer.gates = ctx.empty({rows, z_.gates}, kept);
      layer.before = l == 0 ? from_first(ctx, state[0], rows) : ctx.empty({rows, z_.cells}, dtype_of<T>);
      layer.operand = type == dtype_of<T> ? layer.before : ctx.empty({rows, z_.cells}, type);
      saved->layers.push_back(std::move(layer));
    }
    project(ctx, as_operand(ctx, x), w_.w_x, saved->layers[0].gates);
    steps(ctx, *saved, rows / b);
    y.copy_from(saved->layers[0].before.slice(b, rows + b));
    state[0] = last_rows(y, b);
    return saved;
  }

  void backward(Context& ctx, const Piece& piece, std::vector<Tensor>& dstate) const override {
    Saved& s = *static_cast<Saved*>(piece.saved);
    std::vector<StepOperands> gates;  // by layer
    for (const Highway& layer : s.layers) gates.emplace_back(ctx, layer.gates, z_.batch);
    {
      const Span span(ctx.tracer, "rhn.through_time");
      through_time(ctx, s, piece.dy, dstate[0], gates);
    }
    const Span span(ctx.tracer, "rhn.weight_gradients");
    const int64_t rows = piece.x.dim(0);
    for (int64_t l = z_.depth - 1; l >= 0; --l) {
      Highway& layer = s.layers[static_cast<size_t>(l)];
      const Tensor dz = gates[static_cast<size_t>(l)].all(ctx);
      add_weight_gradient(ctx, w_.w_s[static_cast<size_t>(l)], dz, layer.operand.slice(0, rows));
      add_bias_gradient(ctx, w_.bias[static_cast<size_t>(l)], layer.gates);
      if (l == 0) {
        add_weight_gradient(ctx, w_.w_x, dz, as_operand(ctx, piece.x));
        project_back(ctx, dz, w_.w_x, piece.dx, piece.beta);
      }
      layer = {};
      gates.pop_back();
    }
  }

 private:
  std::vector<StepMatrix> recurrent(Context& ctx, bool trans) const {
    std::vector<StepMatrix> all;
    for (const Var& w : w_.w_s) all.push_back(packed(ctx, w, trans, z_.batch));
    return all;
  }

  void steps(Context& ctx, Saved& s, int64_t steps) const {
    const std::vector<StepMatrix> weights = recurrent(ctx, true);
    const bool rounds = s.layers[0].operand.dtype() != dtype_of<T>;
    if (rounds) to_compute(ctx, at(s.layers[0].before, 0), at(s.layers[0].operand, 0));
    replay_steps(ctx, [&](Context& loop) {
      for (int64_t t = 0; t < steps; ++t) {
        for (size_t l = 0; l < weights.size(); ++l) {
          Highway& layer = s.layers[l];
          const bool last = l + 1 == weights.size();
          Tensor gates = at(layer.gates, t), before = at(layer.before, t), operand = at(layer.operand, t);
          const Highway& after = s.layers[last ? 0 : l + 1];
          Tensor next = at(after.before, last ? t + 1 : t);
          const Tensor next_operand =
              rounds && !(last && t + 1 == steps) ? at(after.operand, last ? t + 1 : t) : Tensor();
          multiply_step(loop, weights[l], operand, gates, l == 0 ? 1.0f : 0.0f);
          with_kept<T>(gates.dtype(), [&](auto type) {
            using S = decltype(type);
            run_step(loop, ForwardStep<Gates, T, S>{gates.template data<S>(), w_.bias[l].value().template data<T>(),
                                                    before.template data<T>(), next.template data<T>(), z_.batch,
                                                    z_.cells, transform_bias_, operand_target(loop, next_operand)});
          });
          if (next_operand.defined()) complete_operand(loop, next, next_operand);
        }
      }
    });
  }

  // Replaces the gates by their gradients, and ds by the gradient of the state before the piece. operands: of the
  // gates, by layer.
  void through_time(Context& ctx, Saved& s, const Tensor& dy, Tensor& ds,
                    const std::vector<StepOperands>& operands) const {
    const std::vector<StepMatrix> weights = recurrent(ctx, false);
    const DType kept = s.layers[0].gates.dtype();
    const int64_t steps = dy.dim(0) / z_.batch;
    // In the kept type a product is written beside ds, which stays in the value type, and added by the next kernel.
    Tensor more = kept == dtype_of<T> ? Tensor() : ctx.empty({z_.batch, z_.cells}, kept);
    replay_steps(ctx, [&](Context& loop) {
      for (int64_t t = steps - 1; t >= 0; --t) {
        for (size_t l = weights.size(); l-- > 0;) {
          const bool last = l + 1 == weights.size(), begins = last && t + 1 == steps, ends = l == 0 && t == 0;
          Tensor gates = at(s.layers[l].gates, t), before = at(s.layers[l].before, t);
          with_kept<T>(kept, [&](auto type) {
            using S = decltype(type);
            run_step(loop, BackwardStep<Gates, T, S>{
                               gates.template data<S>(), before.template data<T>(), ds.template data<T>(),
                               more.defined() && !begins ? more.template data<S>() : nullptr,
                               last ? at(dy, t).template data<T>() : nullptr, z_.batch, z_.cells});
          });
          const bool beside = more.defined() && !ends;
          multiply_step(loop, weights[l], operands[l].of(loop, t), beside ? more : ds, beside ? 0.0f : 1.0f);
        }
      }
    });
  }

  Tensor at(const Tensor& t, int64_t step) const { return rows_at(t, step, z_.batch); }

  LayerWeights w_;
  Sizes z_;
  T transform_bias_;
};

template <class Gates, class T>
Var layer(Context& ctx, const Var& x, const LayerWeights& w, std::vector<Tensor>& state, const LayerOptions& options) {
  const Sizes sizes = check(x, w, state, Gates::kBlocks);
  const auto cell = std::make_shared<Cell<Gates, T>>(w, sizes, options.transform_bias);
  std::vector<Var> weights{w.w_x};
  weights.insert(weights.end(), w.w_s.begin(), w.w_s.end());
  weights.insert(weights.end(), w.bias.begin(), w.bias.end());
  return sequence_layer(ctx, {"rhn.backward", cell, std::move(weights)}, x, state, options.sequence);
}

}  // namespace

Var rhn_layer(Context& ctx, const Var& x, const LayerWeights& w, std::vector<Tensor>& state,
              const LayerOptions& options) {
  if (x.value().dtype() == DType::f64) {
    return options.coupled ? layer<Coupled, double>(ctx, x, w, state, options)
                           : layer<Free, double>(ctx, x, w, state, options);
  }
  return options.coupled ? layer<Coupled, float>(ctx, x, w, state, options)
                         : layer<Free, float>(ctx, x, w, state, options);
}

}  // namespace lmx::rhn
