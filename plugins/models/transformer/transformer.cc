// The Transformer of Vaswani 2017 and Ott 2018 (section 3.2), with fairseq's placement of dropout, initial values and
// positions.

#include "decoding.h"
#include "lmx/model.h"
#include "lmx/plugin.h"
#include "network.h"

namespace lmx::transformer {
namespace {

class Transformer final : public Model, public TextModel {
 public:
  Transformer(const TransformerConfig& config, const ModelEnv& env) : config_(config), vocab_(env.vocab_size) {}

  std::vector<ParameterSpec> parameters() const override { return parameters_of(config_, vocab_); }
  bool translates() const override { return config_.translates(); }
  std::string output_table() const override { return config_.share == "none" ? "" : config_.target_table(); }
  int64_t feature_size() const override { return config_.d; }
  bool separates_documents() const override { return !translates(); }

  Var forward(Context& ctx, const ParameterStore& params, const Batch& batch, ModelState&) const override {
    if (batch.tokens() == 0) return nothing(ctx);
    check(batch);
    const Network network(ctx, params, config_);
    const auto ids = [&](const std::vector<int64_t>& lengths) {
      return drops(ctx) ? row_ids(batch.slots, lengths) : std::vector<uint64_t>();
    };
    const Rows rows{Segments::of(batch.document_lengths()), ids(batch.sequence_lengths())};
    const Tensor inputs = batch.inputs.reshape({batch.inputs.numel()});
    if (!translates()) return network.decoder(inputs, rows, Var(), {});
    const Rows source{Segments::of(batch.source_lengths), ids(batch.source_lengths)};
    return network.decoder(inputs, rows, network.encoder(batch.source, source), source);
  }

  // Windows do not depend on each other: no state is carried from batch to batch.
  ModelState initial_state(Context&, int64_t) const override { return {}; }

  std::unique_ptr<Decoding> decode(Context& ctx, const ParameterStore& params, const Tensor& source,
                                   const std::vector<int64_t>& lengths) const override {
    if (!translates()) return Model::decode(ctx, params, source, lengths);
    return start_decoding(ctx, params, config_, source, lengths);
  }

  std::unique_ptr<Decoding> start_text(Context& ctx, const ParameterStore& params, int64_t rows) const override {
    if (translates()) return nullptr;
    return transformer::start_text(ctx, params, config_, rows);
  }

  int64_t macs_per_pair(int64_t source, int64_t target) const override {
    const int64_t seen = target * (target + 1) / 2;  // pairs of target positions
    const int64_t weights = config_.encoder_layers * source * source +
                            config_.decoder_layers * (seen + (translates() ? source * target : 0));
    return source * source_macs() + target * target_macs() + 2 * config_.d * weights;
  }

 private:
  // A sub-batch without sentences, which the last step of an epoch may have.
  Var nothing(const Context& ctx) const {
    return Var(ctx.empty({0, config_.d}, ctx.compute == DType::f64 ? DType::f64 : DType::f32));
  }
  bool drops(const Context& ctx) const {
    return ctx.training && (config_.dropout > 0 || config_.attention_dropout > 0 || config_.relu_dropout > 0);
  }
  // Multiply-adds for each word of the source: the encoder, and the keys and values that each layer of the decoder
  // computes.
  int64_t source_macs() const {
    const int64_t d = config_.d;
    return config_.encoder_layers * (4 * d * d + 2 * d * config_.ffn) +
           (translates() ? config_.decoder_layers * 2 * d * d : 0);
  }
  int64_t target_macs() const {
    const int64_t d = config_.d;
    return config_.decoder_layers * ((translates() ? 6 : 4) * d * d + 2 * d * config_.ffn);
  }

  void check(const Batch& batch) const {
    if (translates() && !batch.source.defined()) {
      throw UserError(
          "[transformer] the batch has no source sentences: an encoder-decoder learns from parallel text "
          "(model.encoder_layers=0 makes it a language model)");
    }
    if (!translates() && batch.source.defined()) {
      throw UserError("[transformer] model.encoder_layers is 0, a language model, but the data is parallel text");
    }
    LMX_CHECK(!translates() || static_cast<int64_t>(batch.source_lengths.size()) == batch.sequences(),
              batch.source_lengths.size(), " sources for ", batch.sequences(), " targets");
  }

  TransformerConfig config_;
  int64_t vocab_;
};

std::unique_ptr<Model> make_transformer(const Node& config, const std::string& path, const ModelEnv& env) {
  return std::make_unique<Transformer>(read_config<TransformerConfig>(config, path), env);
}

}  // namespace
}  // namespace lmx::transformer

LMX_PLUGIN(model, transformer, lmx::transformer::TransformerConfig, lmx::transformer::make_transformer)
