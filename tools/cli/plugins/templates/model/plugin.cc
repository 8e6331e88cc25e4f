// A neural bigram model, to start from: what follows a word depends on that word alone. See lmx/model.h for what each
// function promises, lmx/ops.h for the operations.
#include "lmx/model.h"
#include "lmx/ops.h"
#include "lmx/plugin.h"

namespace {

// The keys of `model: {name: @name@, ...}` in a recipe. This list reads, checks, documents and prints them.
struct @Name@Config {
  int64_t embedding = 32;
  int64_t hidden = 64;
  void fields(lmx::Fields& f) {
    f.field("embedding", embedding, "numbers of a word's vector", lmx::kPositive);
    f.field("hidden", hidden, "numbers of the hidden layer, which are the features", lmx::kPositive);
  }
};

class @Name@ : public lmx::Model {
 public:
  @Name@(const @Name@Config& config, int64_t vocabulary) : c_(config), vocabulary_(vocabulary) {}

  std::vector<lmx::ParameterSpec> parameters() const override {
    // The last word: its gradient is row-sparse, so that a large vocabulary costs what a batch touches.
    return {{"embedding.weight", {vocabulary_, c_.embedding}, {"uniform", 0.1}, true},
            {"hidden.weight", {c_.hidden, c_.embedding}, {"xavier_uniform", 1}, false},
            {"hidden.bias", {c_.hidden}, {"zeros", 0}, false}};
  }

  lmx::Var forward(lmx::Context& ctx, const lmx::ParameterStore& params, const lmx::Batch& batch,
                   lmx::ModelState&) const override {
    const lmx::Var words = lmx::embedding(ctx, params.at("embedding.weight"), batch.inputs);  // (B, T, E)
    const lmx::Var hidden =
        lmx::tanh(ctx, lmx::linear(ctx, words, params.at("hidden.weight"), params.at("hidden.bias")));  // (B, T, H)
    return lmx::reshape(ctx, hidden, {batch.tokens(), c_.hidden});
  }

  lmx::ModelState initial_state(lmx::Context&, int64_t) const override { return {}; }
  int64_t feature_size() const override { return c_.hidden; }
  int64_t macs_per_token() const override { return c_.embedding * c_.hidden; }
  int64_t activation_bytes_per_token(lmx::DType) const override {
    return 4 * (c_.embedding + 2 * c_.hidden);  // f32: the vector, and the hidden layer before and after tanh
  }

 private:
  @Name@Config c_;
  int64_t vocabulary_;
};

std::unique_ptr<lmx::Model> make_@name@(const lmx::Node& config, const std::string& path, const lmx::ModelEnv& env) {
  return std::make_unique<@Name@>(lmx::read_config<@Name@Config>(config, path), env.vocab_size);
}

}  // namespace

LMX_PLUGIN(model, @name@, @Name@Config, make_@name@)
