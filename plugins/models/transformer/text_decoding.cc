// Texts of a language model, read and generated one position at a time.
#include "decoding.h"

namespace lmx::transformer {
namespace {

class TextDecoding final : public Decoding {
 public:
  TextDecoding(const Context& ctx, const ParameterStore& params, const TransformerConfig& config, int64_t rows)
      : params_(params),
        config_(config),
        cache_(ctx, {config.decoder_layers, config.heads, config.heads, config.d / config.heads}, rows,
               params.at(config.target_table()).value().dtype()) {}

  Tensor read(Context& ctx, std::span<const int32_t> ids, int64_t) override { return step(ctx, ids); }

  Tensor step(Context& ctx, std::span<const int32_t> ids) override {
    Context quiet = silent(ctx);
    const Network network(quiet, params_, config_, true);
    const Tensor words = Tensor::from<int32_t>(quiet.host, {std::ssize(ids)}, ids);
    Var x = network.embed(config_.target_table(), words, cache_.positions(ids));
    for (int64_t l = 0; l < config_.decoder_layers; ++l) x = layer(quiet, network, l, x);
    return network.finish("decoder", Var(cache_.last(quiet, x.value()))).value();
  }

  void select(Context& ctx, std::span<const int64_t> from) override { cache_.select(ctx, from); }

 private:
  Var layer(Context& ctx, const Network& network, int64_t l, const Var& input) {
    const std::string self = str("decoder.", l, ".self"), ffn = str("decoder.", l, ".ffn");
    const Var x = network.sublayer(self, input, {}, [&](const Var& in) {
      const Tensor qkv = network.linear(self + ".qkv", in).value();
      return network.branch(self + ".out", Var(cache_.attend(ctx, l, qkv)));
    });
    return network.sublayer(ffn, x, {}, [&](const Var& in) { return network.feed_forward(ffn, in, {}); });
  }

  const ParameterStore& params_;
  TransformerConfig config_;
  TextCache cache_;
};

}  // namespace

std::unique_ptr<Decoding> start_text(const Context& ctx, const ParameterStore& params, const TransformerConfig& config,
                                     int64_t rows) {
  return std::make_unique<TextDecoding>(ctx, params, config, rows);
}

}  // namespace lmx::transformer
