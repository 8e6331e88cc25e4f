#include "network.h"

#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <unordered_map>

#include "lmx/decoding.h"
#include "lmx/ops.h"

namespace lmx::transformer {

void TransformerConfig::fields(Fields& f) {
  f.field("encoder_layers", encoder_layers, "layers that read the source; 0: a language model of the decoder alone",
          {0, kLayers.max});
  f.field("decoder_layers", decoder_layers, "layers that write the target", kLayers);
  f.field("d", d, "size of a word's vector and of every layer's output: even, and a multiple of heads", kSize);
  f.field("ffn", ffn, "units inside a feed-forward sub-layer", kSize);
  f.field("heads", heads, "heads of an attention, each of size d / heads", kSize);
  f.field("dropout", dropout,
          "probability that an element of the embedded words, or of a sub-layer's output before it is added, is zeroed",
          {0, 0.99, false});
  f.field("attention_dropout", attention_dropout, "probability that an attention weight is zeroed", {0, 0.99, false});
  f.field("relu_dropout", relu_dropout, "probability that a unit inside a feed-forward sub-layer is zeroed",
          {0, 0.99, false});
  f.choice("norm", norm, {"post", "pre"},
           "layer normalisation after each sum (Vaswani 2017), or before each sub-layer and once at the end");
  f.choice("share", share, {"all", "decoder", "none"},
           "one table for source words, target words and output layer; for the last two; or three tables");
}

void TransformerConfig::check(const std::string& where) const {
  if (d % heads != 0 || d % 2 != 0)
    throw UserError(str(where, ": d ", d, " with ", heads, " heads: d must be even and a multiple of heads"));
}

Traits TransformerConfig::traits() const {
  return {{trait::kChangeable, "dropout attention_dropout relu_dropout"},
          {trait::kArchitecture, "transformer"},
          {trait::kEncoderLayers, str(encoder_layers)},
          {trait::kDecoderLayers, str(decoder_layers)},
          {trait::kWidth, str(d)},
          {trait::kFeedForward, str(ffn)},
          {trait::kHeads, str(heads)},
          {trait::kDropout, trait_value(dropout)},
          {trait::kAttentionDropout, trait_value(attention_dropout)},
          {trait::kFeedForwardDropout, trait_value(relu_dropout)},
          {trait::kNorm, norm},
          {trait::kSharedTables, share}};
}

std::string TransformerConfig::source_table() const {
  return share == "all" ? "embedding.weight" : "encoder.embedding.weight";
}
std::string TransformerConfig::target_table() const {
  return share == "all" || !translates() ? "embedding.weight" : "decoder.embedding.weight";
}

namespace {

struct Specs {
  std::vector<ParameterSpec> list;
  const TransformerConfig& config;

  // Biases start at zero. Projections of one input with separate weights start as if they were one matrix of `fan_out`
  // outputs, as in fairseq's attention. `parts`: the outputs of each matrix, if several are stacked.
  void linear(const std::string& name, const std::vector<int64_t>& parts, int64_t in, int64_t fan_out) {
    const int64_t out = std::accumulate(parts.begin(), parts.end(), int64_t{0});
    const double gain = std::sqrt(static_cast<double>(in + out) / static_cast<double>(in + fan_out));
    list.push_back({.name = name + ".weight", .shape = {out, in}, .init = {"xavier_uniform", gain}, .parts = parts});
    list.push_back({name + ".bias", {out}, Init{"zeros", 0}, false});
  }
  void norm(const std::string& name) {
    list.push_back({name + ".gain", {config.d}, Init{"ones", 1}, false});
    list.push_back({name + ".bias", {config.d}, Init{"zeros", 0}, false});
  }
  void table(const std::string& name, int64_t vocab) {
    const double deviation = 1 / std::sqrt(static_cast<double>(config.d));
    list.push_back({name, {vocab, config.d}, Init{"normal", deviation}, true});
  }
  void stack(const std::string& side, int64_t layers, bool cross) {
    const int64_t d = config.d;
    for (int64_t l = 0; l < layers; ++l) {
      const std::string p = str(side, '.', l, '.');
      linear(p + "self.qkv", {d, d, d}, d, 3 * d);
      linear(p + "self.out", {d}, d, d);
      norm(p + "self.norm");
      if (cross) {
        linear(p + "cross.q", {d}, d, 3 * d);
        linear(p + "cross.kv", {d, d}, d, 3 * d);
        linear(p + "cross.out", {d}, d, d);
        norm(p + "cross.norm");
      }
      linear(p + "ffn.in", {config.ffn}, d, config.ffn);
      linear(p + "ffn.out", {d}, config.ffn, d);
      norm(p + "ffn.norm");
    }
    if (config.pre() && layers > 0) norm(side + ".norm");
  }
};

}  // namespace

std::vector<ParameterSpec> parameters_of(const TransformerConfig& config, int64_t vocab) {
  Specs specs{{}, config};
  if (config.translates() && config.source_table() != config.target_table()) specs.table(config.source_table(), vocab);
  specs.table(config.target_table(), vocab);
  specs.stack("encoder", config.encoder_layers, false);
  specs.stack("decoder", config.decoder_layers, config.translates());
  return std::move(specs.list);
}

void position_row(int64_t t, int64_t d, double* to) {
  const int64_t half = d / 2;
  const double step = std::log(10000.0) / static_cast<double>(std::max<int64_t>(1, half - 1));
  for (int64_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(t) * std::exp(-step * static_cast<double>(i));
    to[i] = std::sin(angle);
    to[half + i] = std::cos(angle);
  }
}

namespace {

// The sinusoids of positions 0, 1, ... (rows, d). Those of sentences are computed once for a process, because they take
// longer than all other work of the host before the first layer.
class Sinusoids {
 public:
  // Calls use(row) with the d values of position t.
  template <class Use>
  void with(int64_t t, int64_t d, Use&& use) {
    constexpr int64_t kKept = 1024;  // positions; 8 MB for d = 1024
    if (t >= kKept) {
      std::vector<double> row(static_cast<size_t>(d));
      position_row(t, d, row.data());
      return use(row.data());
    }
    const std::lock_guard lock(mutex_);
    std::vector<double>& rows = of_size_[d];
    for (auto made = static_cast<int64_t>(rows.size()) / d; made <= t; ++made) {
      rows.resize(static_cast<size_t>((made + 1) * d));
      position_row(made, d, rows.data() + made * d);
    }
    use(rows.data() + t * d);
  }

 private:
  std::mutex mutex_;
  std::map<int64_t, std::vector<double>> of_size_;
};

// The sinusoids of the positions that occur (K, d), on the host, and the row of this table for each position (N).
struct PositionTable {
  Tensor rows, ids;
};
PositionTable table_of(Context& ctx, const std::vector<int64_t>& positions, int64_t d, DType type) {
  static Sinusoids& sinusoids = *new Sinusoids;
  std::unordered_map<int64_t, int32_t> place;
  std::vector<int64_t> found;
  PositionTable table{{}, Tensor::empty(ctx.host, {static_cast<int64_t>(positions.size())}, DType::i32)};
  int32_t* id = table.ids.values<int32_t>().data();
  for (const int64_t t : positions) {
    const auto [at, is_new] = place.try_emplace(t, static_cast<int32_t>(found.size()));
    if (is_new) found.push_back(t);
    *id++ = at->second;
  }
  table.rows = Tensor::empty(ctx.host, {static_cast<int64_t>(found.size()), d}, type);
  const auto fill = [&](auto* to) {
    for (const int64_t t : found) sinusoids.with(t, d, [&](const double* row) { to = std::copy_n(row, d, to); });
  };
  type == DType::f64 ? fill(table.rows.values<double>().data()) : fill(table.rows.values<float>().data());
  return table;
}

}  // namespace

Var Network::embed(const std::string& table, const Tensor& ids, const std::vector<int64_t>& positions) const {
  const Var& words = params_.at(table);
  const Var x = scale(ctx_, embedding(ctx_, words, ids), std::sqrt(static_cast<double>(config_.d)));
  const PositionTable places = table_of(ctx_, positions, config_.d, words.value().dtype());
  return add(ctx_, x, embedding(ctx_, Var(ctx_.upload(places.rows)), places.ids));
}

Var Network::embed(const std::string& side, const std::string& table, const Tensor& ids, const Rows& rows) const {
  return noisy(side + ".embedding", config_.dropout, embed(table, ids, positions_of(rows.segments)), rows);
}

bool Network::decodes_on_cpu() const {
  return pack_ && ctx_.device.kind == Device::Kind::cpu;
}

Var Network::linear(const std::string& name, const Var& x) const {
  const Var &w = params_.at(name + ".weight"), &b = params_.at(name + ".bias");
  return pack_ && packs(ctx_, x.value().dim(0)) ? linear_packed(ctx_, x, w, b) : lmx::linear(ctx_, x, w, b);
}

Projection Network::projection(const std::string& name, const Var& x) const {
  return {x, params_.at(name + ".weight"), params_.at(name + ".bias")};
}

Var Network::norm(const std::string& name, const Var& x) const {
  return layer_norm(ctx_, x, params_.at(name + ".gain"), params_.at(name + ".bias"));
}

Var Network::noisy(const std::string& name, double p, const Var& x, const Rows& rows) const {
  return ctx_.training && p > 0 ? dropout(ctx_, x, p, key_.fold(name), rows.ids) : x;
}

Branch Network::branch(const std::string& name, const Var& x) const {
  if (config_.pre() || decodes_on_cpu()) return {linear(name, x)};
  return linear_branch(ctx_, x, params_.at(name + ".weight"), params_.at(name + ".bias"));
}

Branch Network::feed_forward(const std::string& name, const Var& x, const Rows& rows) const {
  if (decodes_on_cpu()) return {linear(name + ".out", relu(ctx_, linear(name + ".in", x)))};
  const FeedForwardWeights weights{params_.at(name + ".in.weight"), params_.at(name + ".in.bias"),
                                   params_.at(name + ".out.weight"), params_.at(name + ".out.bias")};
  const RandomKey key = key_.fold(name + ".relu");
  if (config_.pre()) return {lmx::feed_forward(ctx_, x, weights, config_.relu_dropout, key, rows.ids)};
  return feed_forward_branch(ctx_, x, weights, config_.relu_dropout, key, rows.ids);
}

Var Network::finish(const std::string& side, const Var& x) const {
  return config_.pre() ? norm(side + ".norm", x) : x;
}

AttentionOptions Network::options(const std::string& name, const Rows& rows, bool causal) const {
  AttentionOptions options;
  options.heads = config_.heads;
  options.causal = causal;
  options.dropout = config_.attention_dropout;
  options.key = key_.fold(name + ".weights");
  options.row_ids = rows.ids;
  return options;
}

Var Network::encoder(const Tensor& source, const Rows& rows) const {
  Var x = embed("encoder", config_.source_table(), source, rows);
  for (int64_t l = 0; l < config_.encoder_layers; ++l) {
    const std::string self = str("encoder.", l, ".self"), ffn = str("encoder.", l, ".ffn");
    x = sublayer(self, x, rows, [&](const Var& in) {
      const Var y = attention(ctx_, projection(self + ".qkv", in), rows.segments, options(self, rows, false));
      return branch(self + ".out", y);
    });
    x = sublayer(ffn, x, rows, [&](const Var& in) { return feed_forward(ffn, in, rows); });
  }
  return finish("encoder", x);
}

Var Network::decoder(const Tensor& inputs, const Rows& rows, const Var& memory, const Rows& source) const {
  Var x = embed("decoder", config_.target_table(), inputs, rows);
  for (int64_t l = 0; l < config_.decoder_layers; ++l) {
    const std::string p = str("decoder.", l, '.');
    const std::string self = p + "self", cross = p + "cross", ffn = p + "ffn";
    x = sublayer(self, x, rows, [&](const Var& in) {
      const Var y = attention(ctx_, projection(self + ".qkv", in), rows.segments, options(self, rows, true));
      return branch(self + ".out", y);
    });
    if (memory.defined()) {
      x = sublayer(cross, x, rows, [&](const Var& in) {
        const Var y = attention(ctx_, projection(cross + ".q", in), projection(cross + ".kv", memory), rows.segments,
                                source.segments, options(cross, rows, false));
        return branch(cross + ".out", y);
      });
    }
    x = sublayer(ffn, x, rows, [&](const Var& in) { return feed_forward(ffn, in, rows); });
  }
  return finish("decoder", x);
}

}  // namespace lmx::transformer
