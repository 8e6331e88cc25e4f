// The language model `gpt`: forward passes over a batch, and texts that are read and written one position at a time.

#include "lmx/decoding.h"
#include "lmx/error.h"
#include "lmx/model.h"
#include "lmx/plugin.h"
#include "network.h"

namespace lmx::gpt {
namespace {

// Sequences that are longer than the table of positions have no vectors for their last positions.
void check_length(const GptConfig& config, int64_t length) {
  if (!config.learned() || length <= config.context) return;
  throw UserError(str("[gpt] a sequence of ", length,
                      " tokens is longer than the table of learned positions: ", "model.context is ", config.context));
}

class Text final : public Decoding {
 public:
  Text(const Context& ctx, const ParameterStore& params, const GptConfig& config, int64_t rows)
      : params_(params),
        config_(config),
        type_(params.at("embedding.weight").value().dtype()),
        cache_(ctx, {config.layers, config.heads, config.keys(), config.size()}, rows, type_) {
    config_.checkpoint = false;  // nothing is differentiated
  }

  Tensor read(Context& ctx, std::span<const int32_t> ids, int64_t) override { return step(ctx, ids); }

  Tensor step(Context& ctx, std::span<const int32_t> ids) override {
    Context quiet = silent(ctx);
    const Tensor words = Tensor::from<int32_t>(quiet.host, {std::ssize(ids)}, ids);
    Rows rows{cache_.positions(ids), {}, {}};
    if (!ids.empty()) check_length(config_, rows.positions.back() + 1);
    rows.rotations = rotations_at(quiet, config_, rows.positions, type_);
    const auto attend = [this](Context& to, int64_t layer, const Var& qkv, RandomKey) {
      return Var(cache_.attend(to, layer, qkv.value()));
    };
    const Network network(quiet, params_, config_, true);
    return cache_.last(quiet, network.features(words, std::make_shared<const Rows>(std::move(rows)), attend).value());
  }

  void select(Context& ctx, std::span<const int64_t> from) override { cache_.select(ctx, from); }

 private:
  const ParameterStore& params_;
  GptConfig config_;
  DType type_;
  TextCache cache_;
};

class Gpt final : public Model, public TextModel {
 public:
  Gpt(const GptConfig& config, const ModelEnv& env) : config_(config), vocab_(env.vocab_size) {}

  std::vector<ParameterSpec> parameters() const override { return parameters_of(config_, vocab_); }
  std::string output_table() const override { return config_.tie ? "embedding.weight" : ""; }
  int64_t feature_size() const override { return config_.d; }
  bool separates_documents() const override { return true; }
  // Sequences do not depend on each other: no state is carried from batch to batch.
  ModelState initial_state(Context&, int64_t) const override { return {}; }

  Var forward(Context& ctx, const ParameterStore& params, const Batch& batch, ModelState&) const override {
    const std::vector<int64_t> lengths = batch.document_lengths();
    for (const int64_t length : lengths) check_length(config_, length);
    const Segments segments = Segments::of(lengths);
    const DType type = params.at("embedding.weight").value().dtype();
    Rows made{positions_of(segments), {}, {}};
    if (ctx.training && config_.dropout > 0) made.ids = row_ids(batch.slots, batch.sequence_lengths());
    made.rotations = rotations_at(ctx, config_, made.positions, type);
    const auto rows = std::make_shared<const Rows>(std::move(made));
    const auto attend = [this, rows, segments](Context& to, int64_t, const Var& qkv, RandomKey key) {
      AttentionOptions options;
      options.heads = config_.heads;
      options.kv_heads = config_.keys();
      options.causal = true;
      options.dropout = config_.dropout;
      options.key = key;
      options.row_ids = rows->ids;
      return attention(to, qkv, segments, options);
    };
    return Network(ctx, params, config_).features(batch.inputs.reshape({batch.inputs.numel()}), rows, attend);
  }

  std::unique_ptr<Decoding> start_text(Context& ctx, const ParameterStore& params, int64_t rows) const override {
    return std::make_unique<Text>(ctx, params, config_, rows);
  }

 private:
  GptConfig config_;
  int64_t vocab_;
};

}  // namespace
}  // namespace lmx::gpt

LMX_PLUGIN(model, gpt, lmx::gpt::GptConfig, lmx::gpt::Gpt)
