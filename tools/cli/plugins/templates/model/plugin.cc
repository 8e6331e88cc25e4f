// A neural bigram model, to start from: what follows a word depends on that word alone. See lmx/model.h for what each
// function promises, lmx/ops.h for the operations. The model also has an op of its own, for which lmx/ops.h has none.
#include "@name@_kernels.h"
#include "lmx/model.h"
#include "lmx/ops.h"
#include "lmx/plugin.h"
#include "lmx/pointwise.h"

namespace {

const lmx::KernelAdder adder = lmx::cpu::pointwise<@name@_kernels::GateForward, @name@_kernels::GateBackward>();

// a sigmoid(b)   x (N, 2H): a, then b -> (N, H)   grads: x
template <class T>
lmx::Var gate(lmx::Context& ctx, const lmx::Var& x) {
  const int64_t rows = x.shape()[0], cells = x.shape()[1] / 2;
  lmx::Tensor y = ctx.empty({rows, cells}, lmx::dtype_of<T>);
  lmx::run_kernel(ctx, @name@_kernels::GateForward<T>{x.value().data<T>(), y.data<T>(), rows, cells});
  const lmx::Var out(std::move(y));
  if (lmx::recording(ctx, {&x})) {
    ctx.tape->record("@name@_gate", {x}, {out}, [&ctx, x, out, rows, cells](lmx::Tape&) {
      const lmx::Tensor& dy = lmx::Tape::grad_of(out);
      if (!dy.defined()) return;
      lmx::Tensor dx = ctx.empty(x.shape(), lmx::dtype_of<T>);
      lmx::run_kernel(
          ctx, @name@_kernels::GateBackward<T>{x.value().data<T>(), dy.data<T>(), dx.data<T>(), rows, cells});
      lmx::Tape::accumulate(ctx, x, std::move(dx));
    });
  }
  return out;
}

// The keys of `model: {name: @name@, ...}` in a recipe. This list reads, checks, documents and prints them.
struct @Name@Config {
  int64_t embedding = 32;
  int64_t hidden = 64;
  void fields(lmx::Fields& f) {
    f.field("embedding", embedding, "numbers of a word's vector", lmx::kSize);
    f.field("hidden", hidden, "numbers of the hidden layer, which are the features", lmx::kSize);
  }
};

class @Name@ : public lmx::Model {
 public:
  @Name@(const @Name@Config& config, const lmx::ModelEnv& env) : c_(config), vocabulary_(env.vocab_size) {}

  std::vector<lmx::ParameterSpec> parameters() const override {
    // The last word: its gradient is row-sparse, so that a large vocabulary costs what a batch touches.
    return {{"embedding.weight", {vocabulary_, c_.embedding}, {"uniform", 0.1}, true},
            {"hidden.weight", {2 * c_.hidden, c_.embedding}, {"xavier_uniform", 1}, false},
            {"hidden.bias", {2 * c_.hidden}, {"zeros", 0}, false}};
  }

  lmx::Var forward(lmx::Context& ctx, const lmx::ParameterStore& params, const lmx::Batch& batch,
                   lmx::ModelState&) const override {
    const lmx::Var words = lmx::embedding(ctx, params.at("embedding.weight"), batch.inputs);  // (B, T, E)
    const lmx::Var hidden =
        lmx::linear(ctx, words, params.at("hidden.weight"), params.at("hidden.bias"));  // (B, T, 2H)
    const lmx::Var x = lmx::reshape(ctx, hidden, {batch.tokens(), 2 * c_.hidden});
    // Values are f32; `lmx plugins check` compares gradients with difference quotients in f64.
    return x.value().dtype() == lmx::DType::f64 ? gate<double>(ctx, x) : gate<float>(ctx, x);
  }

  lmx::ModelState initial_state(lmx::Context&, int64_t) const override { return {}; }
  int64_t feature_size() const override { return c_.hidden; }

 private:
  @Name@Config c_;
  int64_t vocabulary_;
};

}  // namespace

LMX_PLUGIN(model, @name@, @Name@Config, @Name@)
