// A small language model composed of public ops alone: a decoder with rotary positions (Su et al. 2021), RMS
// normalisation (Zhang and Sennrich 2019), SwiGLU (Shazeer 2020) and grouped queries (Ainslie et al. 2023), a term of
// its own in the loss (Merity et al. 2017, activation regularisation), and texts that keep their keys and values.
#include <functional>

#include "lmx/array_ops.h"
#include "lmx/error.h"
#include "lmx/model.h"
#include "lmx/ops.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

struct ComposedDecoderConfig {
  int64_t layers = 2, d = 32, heads = 4, kv_heads = 2, ffn = 64;
  double activation = 0;
  void fields(Fields& f) {
    f.field("layers", layers, "layers of attention and feed-forward", kPositive);
    f.field("d", d, "size of a word's vector and of every layer's output", kPositive);
    f.field("heads", heads, "heads of the queries", kPositive);
    f.field("kv_heads", kv_heads, "heads of keys and values, a divisor of heads", kPositive);
    f.field("ffn", ffn, "units inside a feed-forward layer", kPositive);
    f.field("activation", activation, "weight of the mean square of the features in the loss", kNonNegative);
  }
  int64_t head_size() const { return d / heads; }
};

class ComposedDecoder : public Model, public TextModel, public LossTermModel {
 public:
  ComposedDecoder(const ComposedDecoderConfig& config, int64_t vocabulary) : c_(config), vocabulary_(vocabulary) {}

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> specs{{"embedding.weight", {vocabulary_, c_.d}, {"normal", 0.1}, true}};
    const auto matrix = [&](const std::string& name, int64_t out, int64_t in) {
      specs.push_back({name, {out, in}, {"xavier_uniform", 1}, false});
    };
    const auto gain = [&](const std::string& name) { specs.push_back({name, {c_.d}, {"ones", 1}, false}); };
    for (int64_t l = 0; l < c_.layers; ++l) {
      const std::string p = str("layer.", l, ".");
      gain(p + "attention_norm");
      matrix(p + "q", c_.d, c_.d);
      matrix(p + "k", c_.kv_heads * c_.head_size(), c_.d);
      matrix(p + "v", c_.kv_heads * c_.head_size(), c_.d);
      matrix(p + "out", c_.d, c_.d);
      gain(p + "ffn_norm");
      matrix(p + "gate", c_.ffn, c_.d);
      matrix(p + "up", c_.ffn, c_.d);
      matrix(p + "down", c_.d, c_.ffn);
    }
    gain("norm");
    return specs;
  }

  Var forward(Context& ctx, const ParameterStore& params, const Batch& batch, ModelState&) const override {
    const Segments rows = Segments::of(lengths_of(batch));
    AttentionOptions options = attention_options();
    options.causal = true;
    const auto attend = [&](int64_t, const Var& q, const Var& k, const Var& v) {
      return attention(ctx, {q, k, v, rows, rows}, options);
    };
    return features(ctx, params, batch.inputs.reshape({batch.inputs.numel()}), positions_of(rows), attend);
  }

  std::vector<std::string> loss_terms() const override { return {"activation"}; }
  Var forward_training(Context& ctx, const ParameterStore& params, const Batch& batch, ModelState& state,
                       LossTerms& terms) const override {
    const Var y = forward(ctx, params, batch, state);
    terms.add(ctx, "activation", scale(ctx, sum(ctx, pow(ctx, y, 2)), c_.activation / static_cast<double>(c_.d)));
    return y;
  }

  // The keys and values of every position so far, for each layer and text.
  class Text final : public Decoding {
   public:
    Text(const ComposedDecoder& model, const ParameterStore& params, int64_t rows)
        : model_(model), params_(params), kept_(static_cast<size_t>(model.c_.layers)) {
      for (auto& layer : kept_) layer.resize(static_cast<size_t>(rows));
    }
    Tensor step(Context& ctx, std::span<const int32_t> ids) override {
      Context quiet = ctx;
      quiet.tape = nullptr;
      const auto n = static_cast<int64_t>(ids.size());
      const Segments queries = Segments::of(std::vector<int64_t>(ids.size(), 1));
      const Segments keys = Segments::of(std::vector<int64_t>(ids.size(), ++length_));
      const auto attend = [&](int64_t l, const Var& q, const Var& k, const Var& v) {
        std::vector<Var> all_keys, all_values;
        for (int64_t r = 0; r < n; ++r) {
          Kept& kept = kept_[static_cast<size_t>(l)][static_cast<size_t>(r)];
          const Var key = slice(quiet, k, 0, r, r + 1), value = slice(quiet, v, 0, r, r + 1);
          kept.keys = kept.keys.defined() ? concat(quiet, {kept.keys, key}, 0) : key;
          kept.values = kept.values.defined() ? concat(quiet, {kept.values, value}, 0) : value;
          all_keys.push_back(kept.keys);
          all_values.push_back(kept.values);
        }
        return attention(quiet, {q, concat(quiet, all_keys, 0), concat(quiet, all_values, 0), queries, keys},
                         model_.attention_options());
      };
      const Tensor words = Tensor::from<int32_t>(quiet.host, {n}, ids);
      const std::vector<int64_t> positions(ids.size(), length_ - 1);
      return model_.features(quiet, params_, words, positions, attend).value();
    }
    void select(Context&, std::span<const int64_t> from) override {
      for (auto& layer : kept_) {
        std::vector<Kept> chosen;
        for (const int64_t r : from) chosen.push_back(layer.at(static_cast<size_t>(r)));
        layer = std::move(chosen);
      }
    }

   private:
    struct Kept {
      Var keys, values;  // (length_, kv_heads size)
    };
    const ComposedDecoder& model_;
    const ParameterStore& params_;
    std::vector<std::vector<Kept>> kept_;
    int64_t length_ = 0;
  };
  std::unique_ptr<Decoding> start_text(Context&, const ParameterStore& params, int64_t rows) const override {
    return std::make_unique<Text>(*this, params, rows);
  }

  ModelState initial_state(Context&, int64_t) const override { return {}; }
  int64_t feature_size() const override { return c_.d; }

 private:
  using Attend = std::function<Var(int64_t layer, const Var& q, const Var& k, const Var& v)>;

  // Features (N, D) of the words, each at its position; `attend` is what a layer makes of its queries, keys and values.
  Var features(Context& ctx, const ParameterStore& params, const Tensor& words, std::span<const int64_t> positions,
               const Attend& attend) const {
    Var x = embedding(ctx, params.at("embedding.weight"), words);
    for (int64_t l = 0; l < c_.layers; ++l) {
      const std::string p = str("layer.", l, ".");
      const auto product = [&](const char* name, const Var& in) { return linear(ctx, in, params.at(p + name), Var()); };
      const Var a = rms_norm(ctx, x, params.at(p + "attention_norm"));
      const Var q = rope(ctx, product("q", a), positions, {c_.heads});
      const Var k = rope(ctx, product("k", a), positions, {c_.kv_heads});
      x = add(ctx, x, product("out", attend(l, q, k, product("v", a))));
      const Var f = rms_norm(ctx, x, params.at(p + "ffn_norm"));
      const Var units = multiply(ctx, silu(ctx, product("gate", f)), product("up", f));
      x = add(ctx, x, product("down", units));
    }
    return rms_norm(ctx, x, params.at("norm"));
  }

  AttentionOptions attention_options() const {
    AttentionOptions options;
    options.heads = c_.heads;
    options.kv_heads = c_.kv_heads;
    return options;
  }

  static std::vector<int64_t> lengths_of(const Batch& batch) {
    if (!batch.lengths.empty()) return batch.lengths;
    return std::vector<int64_t>(static_cast<size_t>(batch.inputs.dim(0)), batch.inputs.dim(1));
  }

  ComposedDecoderConfig c_;
  int64_t vocabulary_;
};

std::unique_ptr<Model> make_composed_decoder(const Node& config, const std::string& path, const ModelEnv& env) {
  const auto c = read_config<ComposedDecoderConfig>(config, path);
  if (c.d % c.heads != 0 || c.head_size() % 2 != 0 || c.heads % c.kv_heads != 0) {
    throw UserError(str("[composed_decoder] d ", c.d, ", heads ", c.heads, ", kv_heads ", c.kv_heads,
                        ": heads must divide d into even sizes, and kv_heads must divide heads"));
  }
  return std::make_unique<ComposedDecoder>(c, env.vocab_size);
}

}  // namespace

LMX_PLUGIN(model, composed_decoder, ComposedDecoderConfig, make_composed_decoder)
