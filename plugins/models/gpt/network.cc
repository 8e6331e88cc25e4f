#include "network.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "lmx/array_ops.h"
#include "lmx/decoding.h"
#include "lmx/error.h"
#include "lmx/recompute.h"

namespace lmx::gpt {

void RopeScaling::fields(Fields& f) {
  f.field("factor", factor, "factor by which the slow frequencies are divided; 1: no scaling", {1, 1e6});
  f.field("low", low, "frequencies of at most this number of turns in `original` positions are divided by `factor`",
          kPositive);
  f.field("high", high, "frequencies of at least this number of turns are unchanged", kPositive);
  f.field("original", original, "number of positions that the model was trained on before", {1, 1 << 30});
}

void GptConfig::fields(Fields& f) {
  f.field("layers", layers, "layers of attention and feed-forward", kLayers);
  f.field("d", d, "size of a word's vector and of every layer's output", kSize);
  f.field("heads", heads, "heads of the queries", kSize);
  f.field("kv_heads", kv_heads, "heads of keys and values, a divisor of heads; 0: as many as heads", kSizeOrNone);
  f.field("head_size", head_size, "size of a head; 0: d / heads", kSizeOrNone);
  f.field("ffn", ffn,
          "units inside a feed-forward layer; 0: 4 d, or with swiglu 8 d / 3, rounded up to a multiple of 64",
          kSizeOrNone);
  f.field("context", context, "the longest sequence; with learned positions, a longer one is an error", {1, 1 << 30});
  f.choice("positions", positions, {"rope", "learned"},
           "rotary positions of queries and keys, or a table of `context` vectors that are added to the words");
  f.field("rope_base", rope_base, "base of the rotary frequencies", {1, 1e12, true});
  f.group("rope_scaling", rope_scaling, "rotary frequencies for longer sequences, as in Llama 3.1");
  f.choice("norm", norm, {"rms", "layer"}, "normalisation before each sub-layer and at the end");
  f.field("norm_eps", norm_eps, "constant under the root of the normalisation", kNonNegative);
  f.choice("activation", activation, {"swiglu", "gelu_tanh"}, "nonlinearity of a feed-forward layer");
  f.field("bias", bias, "biases in all linear layers");
  f.field("qkv_bias", qkv_bias, "a bias in the layer of queries, keys and values");
  f.field("qk_norm", qk_norm, "RMS normalisation of each head's query and key");
  f.field("tie", tie, "the table of words is also the output layer's weight");
  f.field("checkpoint", checkpoint,
          "activation checkpointing: keeps only the input of each layer, and computes the rest again in backward");
  f.field("dropout", dropout,
          "probability that an element of the embedded words, an attention weight, or an element of a sub-layer's "
          "output is zeroed",
          {0, 0.99, false});
}

void GptConfig::check(const std::string& where) const {
  if (head_size == 0 && d % heads != 0)
    throw UserError(str(where, ": d ", d, " is not a multiple of heads ", heads, "; head_size sets another size"));
  if (heads % keys() != 0) throw UserError(str(where, ": kv_heads ", kv_heads, " does not divide heads ", heads));
  if (!learned() && size() % 2 != 0)
    throw UserError(str(where, ": heads of size ", size(), ": rotary positions need an even size (head_size)"));
  if (rope_scaling.high <= rope_scaling.low)
    throw UserError(
        str(where, ": rope_scaling.high ", rope_scaling.high, " must be larger than low ", rope_scaling.low));
}

Traits GptConfig::traits() const {
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return {{trait::kChangeable, "dropout checkpoint"},
          {trait::kArchitecture, "gpt"},
          {"layers", str(layers)},
          {"d", str(d)},
          {"heads", str(heads)},
          {"kv_heads", str(keys())},
          {"head_size", str(size())},
          {"ffn", str(units())},
          {"context", str(context)},
          {"positions", positions},
          {"rope_base", trait_value(rope_base)},
          {"rope_scaling.factor", trait_value(rope_scaling.factor)},
          {"rope_scaling.low", trait_value(rope_scaling.low)},
          {"rope_scaling.high", trait_value(rope_scaling.high)},
          {"rope_scaling.original", str(rope_scaling.original)},
          {"norm", norm},
          {"norm_eps", trait_value(norm_eps)},
          {"activation", activation},
          {"bias", flag(bias)},
          {"qkv_bias", flag(qkv_bias)},
          {"qk_norm", flag(qk_norm)},
          {"tie", flag(tie)},
          {"dropout", trait_value(dropout)}};
}

int64_t GptConfig::units() const {
  constexpr int64_t kMultiple = 64;
  if (ffn > 0) return ffn;
  return gated() ? (8 * d + 3 * kMultiple - 1) / (3 * kMultiple) * kMultiple : 4 * d;
}

namespace {

struct Specs {
  const GptConfig& config;
  std::vector<ParameterSpec> list = {};

  static constexpr double kDeviation = 0.02;

  void table(const std::string& name, int64_t rows, bool sparse) {
    list.push_back({name, {rows, config.d}, Init{"normal", kDeviation}, sparse});
  }
  // `parts`: the outputs of each matrix, if several are stacked.
  void linear(const std::string& name, const std::vector<int64_t>& parts, int64_t in, double deviation, bool bias) {
    const int64_t out = std::accumulate(parts.begin(), parts.end(), int64_t{0});
    list.push_back({.name = name + ".weight", .shape = {out, in}, .init = {"normal", deviation}, .parts = parts});
    if (bias) list.push_back({name + ".bias", {out}, Init{"zeros", 0}, false});
  }
  void gain(const std::string& name, int64_t size) { list.push_back({name + ".gain", {size}, Init{"ones", 1}, false}); }
  void norm(const std::string& name) {
    gain(name, config.d);
    if (config.norm == "layer") list.push_back({name + ".bias", {config.d}, Init{"zeros", 0}, false});
  }
  // The outputs of 2 layers sub-layers are added up, so their last matrices start smaller (Radford et al. 2019).
  void layer(const std::string& p) {
    const GptConfig& c = config;
    const double last = kDeviation / std::sqrt(2 * static_cast<double>(c.layers));
    norm(p + "attention_norm");
    const int64_t q = c.heads * c.size(), kv = c.keys() * c.size();
    linear(p + "attention.qkv", {q, kv, kv}, c.d, kDeviation, c.bias || c.qkv_bias);
    if (c.qk_norm) {
      gain(p + "attention.q_norm", c.size());
      gain(p + "attention.k_norm", c.size());
    }
    linear(p + "attention.out", {c.d}, q, last, c.bias);
    norm(p + "ffn_norm");
    linear(p + "ffn.in", std::vector<int64_t>(c.gated() ? 2 : 1, c.units()), c.d, kDeviation, c.bias);
    linear(p + "ffn.out", {c.d}, c.units(), last, c.bias);
  }
};

// The frequencies of Llama 3.1. Empty: without scaling.
std::vector<double> scaled_frequencies(const GptConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < c.size() / 2 && s.factor != 1; ++i) {
    const double frequency = std::pow(c.rope_base, -2 * static_cast<double>(i) / static_cast<double>(c.size()));
    const double turns = static_cast<double>(s.original) * frequency / (2 * std::numbers::pi);
    const double kept = std::clamp((turns - s.low) / (s.high - s.low), 0.0, 1.0);
    frequencies.push_back(frequency * (kept + (1 - kept) / s.factor));
  }
  return frequencies;
}

// Rows of `table` at the positions, with a dense gradient: every batch uses most of the rows.
Var learned_positions(Context& ctx, const Var& table, const std::vector<int64_t>& positions) {
  Context quiet = ctx;
  quiet.tape = nullptr;
  std::vector<int32_t> ids(positions.begin(), positions.end());
  const Shape shape{static_cast<int64_t>(ids.size())};
  const Var out(embedding(quiet, table, Tensor::from<int32_t>(ctx.host, shape, ids)).value());
  if (recording(ctx, {&table})) {
    ctx.tape->record("positions", {table}, {out}, [&ctx, table, out, ids = std::move(ids)](Tape&) {
      Tape::Sink sink = Tape::sink(ctx, table);
      if (sink.beta == 0) sink.grad.zero();
      add_rows(ctx, sink.grad, {ids, Tape::grad_of(out), false});
    });
  }
  return out;
}

}  // namespace

std::vector<ParameterSpec> parameters_of(const GptConfig& config, int64_t vocab) {
  Specs specs{config};
  specs.table("embedding.weight", vocab, true);
  if (config.learned()) specs.table("positions.weight", config.context, false);
  for (int64_t l = 0; l < config.layers; ++l) specs.layer(str("layer.", l, '.'));
  specs.norm("norm");
  return std::move(specs.list);
}

Rotations rotations_at(Context& ctx, const GptConfig& config, const std::vector<int64_t>& positions, DType type) {
  if (config.learned()) return {};
  RopeOptions options;
  options.base = config.rope_base;
  options.frequencies = scaled_frequencies(config);
  return rotations_of(ctx, positions, config.size(), options, type);
}

Var Network::features(const Tensor& words, const std::shared_ptr<const Rows>& rows, const Attend& attend) const {
  Stream stream{embed(words, *rows)};
  for (int64_t l = 0; l < config_.layers; ++l)
    stream =
        config_.checkpoint ? Stream{checkpointed_layer(l, stream.x, rows, attend)} : layer(l, stream, *rows, attend);
  return sum(stream, "norm", *rows, false).norm;
}

Var Network::checkpointed_layer(int64_t l, const Var& input, const std::shared_ptr<const Rows>& rows,
                                const Attend& attend) const {
  std::vector<Var> weights;
  for (const std::string& name : params_.names())
    if (name.starts_with(str("layer.", l, '.'))) weights.push_back(params_.at(name));
  return recompute(ctx_, input, std::move(weights),
                   [l, rows, attend, &params = params_, &config = config_](Context& ctx, const Var& x) {
                     const Network network(ctx, params, config);
                     return network.sum(network.layer(l, {x}, *rows, attend), "", *rows, false).sum;
                   });
}

Var Network::embed(const Tensor& words, const Rows& rows) const {
  Var x = embedding(ctx_, params_.at("embedding.weight"), words);
  if (config_.learned()) x = add(ctx_, x, learned_positions(ctx_, params_.at("positions.weight"), rows.positions));
  return drops() ? dropout(ctx_, x, config_.dropout, key_.fold("embedding"), rows.ids) : x;
}

Network::Stream Network::layer(int64_t l, const Stream& input, const Rows& rows, const Attend& attend) const {
  const std::string p = str("layer.", l, '.'), attention = p + "attention", ffn = p + "ffn";
  const NormedSum before = sum(input, p + "attention_norm", rows, true);
  const Var y = attend(ctx_, l, operands(attention, before.norm, rows), key_.fold(attention + ".weights"));
  const NormedSum after = sum({before.sum, branch(attention + ".out", y), attention}, p + "ffn_norm", rows, true);
  return {after.sum, feed_forward(ffn, after.norm), ffn};
}

NormedSum Network::sum(const Stream& stream, const std::string& norm, const Rows& rows, bool operand) const {
  ResidualInputs in{stream.x, stream.branch, {}, {}, config_.norm_eps};
  if (!norm.empty()) in.gain = params_.at(norm + ".gain");
  if (!norm.empty() && config_.norm == "layer") in.bias = params_.at(norm + ".bias");
  return residual_sum(ctx_, in, operand, config_.dropout, key_.fold(stream.name), rows.ids);
}

Var Network::operands(const std::string& name, const Var& x, const Rows& rows) const {
  RopeOptions options;
  options.heads = config_.heads + 2 * config_.keys();
  options.rotated = config_.heads + config_.keys();
  const std::string layer = name + ".qkv";
  if (!step_ && !config_.qk_norm && !config_.learned())
    return rope(ctx_, Projection{x, params_.at(layer + ".weight"), bias_of(layer)}, rows.rotations, options);
  Var qkv = linear(layer, x);
  if (config_.qk_norm) {
    const int64_t q = config_.heads * config_.size(), kv = config_.keys() * config_.size();
    const std::vector<Var> parts = split(ctx_, qkv, {q, kv, kv}, 1);
    qkv = concat(ctx_,
                 {norm_heads(name + ".q_norm", parts[0], config_.heads),
                  norm_heads(name + ".k_norm", parts[1], config_.keys()), parts[2]},
                 1);
  }
  return config_.learned() ? qkv : rope(ctx_, qkv, rows.rotations, options);
}

Var Network::norm_heads(const std::string& name, const Var& x, int64_t heads) const {
  const Var by_head = reshape(ctx_, x, {x.value().dim(0) * heads, config_.size()});
  return reshape(ctx_, rms_norm(ctx_, by_head, params_.at(name + ".gain"), config_.norm_eps), x.shape());
}

Branch Network::feed_forward(const std::string& name, const Var& x) const {
  const std::string in = name + ".in", out = name + ".out";
  if (decodes_on_cpu()) {
    const Var z = linear(in, x);
    return {linear(out, config_.gated() ? swiglu(ctx_, z) : gelu_tanh(ctx_, z))};
  }
  return feed_forward_branch(ctx_, x,
                             {params_.at(in + ".weight"), bias_of(in), params_.at(out + ".weight"), bias_of(out),
                              config_.gated() ? Activation::swiglu : Activation::gelu_tanh});
}

Var Network::bias_of(const std::string& layer) const {
  const std::string name = layer + ".bias";
  return params_.contains(name) ? params_.at(name) : Var();
}

bool Network::decodes_on_cpu() const {
  return step_ && ctx_.device.kind == Device::Kind::cpu;
}

Var Network::linear(const std::string& name, const Var& x) const {
  const Var& w = params_.at(name + ".weight");
  const Var b = bias_of(name);
  return step_ && packs(ctx_, x.value().dim(0)) ? linear_packed(ctx_, x, w, b) : lmx::linear(ctx_, x, w, b);
}

Branch Network::branch(const std::string& name, const Var& x) const {
  if (decodes_on_cpu()) return {linear(name, x)};
  return linear_branch(ctx_, x, params_.at(name + ".weight"), bias_of(name));
}

bool Network::drops() const {
  return ctx_.training && config_.dropout > 0;
}

}  // namespace lmx::gpt
