// The smallest translation model, for tests of the trainer: the vector of a target word plus the mean of its sentence's
// source vectors, through one linear layer and tanh.
#include "lmx/error.h"
#include "lmx/model.h"
#include "lmx/ops.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

struct TinyConfig {
  int64_t width = 8;
  double dropout = 0;
  void fields(Fields& f) {
    f.field("width", width, "of everything", kPositive);
    f.field("dropout", dropout, "of the words' vectors", {0, 0.9});
  }
};

void add_row(float* to, const float* from, float factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

// A tensor of any memory in that of the host.
Tensor on_host(const Context& ctx, const Tensor& t) {
  const auto values = ctx.read<float>(t);
  return Tensor::from<float>(ctx.host, t.shape(), {values.get().begin(), values.get().end()});
}

// x (N, D) with the mean of y's (M, D) rows of the same sentence added to each row. The host computes it.
Var add_means(Context& ctx, const Var& x, const Var& y, const Batch& batch) {
  const int64_t width = x.shape()[1];
  const std::vector<int64_t> rows = batch.lengths, sources = batch.source_lengths;
  // step(row of x, row of y, 1 / sources of its sentence)
  const auto each = [rows, sources](auto&& step) {
    int64_t at = 0, from = 0;
    for (size_t b = 0; b < rows.size(); from += sources[b++])
      for (int64_t i = 0; i < rows[b]; ++i, ++at)
        for (int64_t j = 0; j < sources[b]; ++j) step(at, from + j, 1.0f / static_cast<float>(sources[b]));
  };
  Tensor out = on_host(ctx, x.value());
  const Tensor from = on_host(ctx, y.value());
  each([&](int64_t i, int64_t j, float share) {
    add_row(out.data<float>() + i * width, from.data<float>() + j * width, share, width);
  });
  Var sum(ctx.upload(out));
  if (ctx.tape)
    ctx.tape->record("add_means", {x, y}, {sum}, [&ctx, x, y, sum, each, width](Tape&) {
      const Tensor dz = on_host(ctx, Tape::grad_of(sum));
      Tensor dy = Tensor::zeros(ctx.host, y.shape(), DType::f32);
      each([&](int64_t i, int64_t j, float share) {
        add_row(dy.data<float>() + j * width, dz.data<float>() + i * width, share, width);
      });
      Tape::accumulate(ctx, x, ctx.upload(dz));
      Tape::accumulate(ctx, y, ctx.upload(dy));
    });
  return sum;
}

class TinyTranslator final : public Model {
 public:
  TinyTranslator(const TinyConfig& config, const ModelEnv& env) : config_(config), vocab_(env.vocab_size) {}
  std::vector<ParameterSpec> parameters() const override {
    const Init init{"uniform", 0.3};
    return {{"source.weight", {vocab_, config_.width}, init, true},
            {"target.weight", {vocab_, config_.width}, init, true},
            {"mix.weight", {config_.width, config_.width}, init, false},
            {"mix.bias", {config_.width}, Init{"zeros", 0}, false}};
  }
  bool translates() const override { return true; }
  Var forward(Context& ctx, const ParameterStore& params, const Batch& batch, ModelState&) const override {
    LMX_CHECK(batch.source.defined() && batch.lengths.size() == batch.slots.size());
    std::vector<uint64_t> rows;  // by sentence and position
    for (size_t b = 0; b < batch.lengths.size(); ++b)
      for (int64_t i = 0; i < batch.lengths[b]; ++i) rows.push_back(static_cast<uint64_t>(batch.slots[b] * 1000 + i));
    Var x = embedding(ctx, params.at("target.weight"), batch.inputs);
    x = dropout(ctx, x, config_.dropout, ctx.key.fold("dropout"), rows);
    x = add_means(ctx, x, embedding(ctx, params.at("source.weight"), batch.source), batch);
    return lmx::tanh(ctx, linear(ctx, x, params.at("mix.weight"), params.at("mix.bias")));
  }
  ModelState initial_state(Context&, int64_t) const override { return {}; }
  int64_t feature_size() const override { return config_.width; }
  int64_t macs_per_pair(int64_t source, int64_t target) const override {
    return target * (source + config_.width) * config_.width;
  }

 private:
  TinyConfig config_;
  int64_t vocab_;
};

}  // namespace

LMX_PLUGIN(model, tiny_translator, TinyConfig, TinyTranslator)
