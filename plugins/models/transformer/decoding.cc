// Keys and values of the source are computed once for each sentence and shared by its rows. Keys and values of the
// target stay in the tensors of their steps. For each step, a row stores which row of that step it continues. Therefore
// rows of a beam can be duplicated, exchanged and dropped without a copy.
#include "decoding.h"

namespace lmx::transformer {
namespace {

class TransformerDecoding final : public Decoding {
 public:
  TransformerDecoding(Context& ctx, const ParameterStore& params, const TransformerConfig& config, const Tensor& source,
                      const std::vector<int64_t>& lengths)
      : params_(params), config_(config), source_{Segments::of(lengths), {}} {
    for (size_t b = 0; b < lengths.size(); ++b) sentence_.push_back(static_cast<int64_t>(b));
    Context quiet = silent(ctx);
    const Network network(quiet, params_, config_);
    const Var memory = network.encoder(source, source_);
    for (int64_t l = 0; l < config_.decoder_layers; ++l) {
      source_kv_.push_back(network.linear(str("decoder.", l, ".cross.kv"), memory).value());
    }
    written_.resize(static_cast<size_t>(config_.decoder_layers));
  }

  Tensor step(Context& ctx, std::span<const int32_t> ids) override {
    const auto rows = static_cast<int64_t>(ids.size());
    LMX_CHECK(ids.size() == sentence_.size(), ids.size(), " words for ", sentence_.size(), " rows");
    Context quiet = silent(ctx);
    const Network network(quiet, params_, config_, true);
    std::vector<int64_t> own(ids.size());
    for (size_t r = 0; r < own.size(); ++r) own[r] = static_cast<int64_t>(r);
    const auto place = static_cast<int64_t>(from_.size());
    from_.push_back(std::move(own));
    const Tensor words = Tensor::from<int32_t>(quiet.host, {rows}, ids);
    Var x = network.embed(config_.target_table(), words, std::vector<int64_t>(ids.size(), place));
    for (int64_t l = 0; l < config_.decoder_layers; ++l) x = layer(quiet, network, l, x);
    return network.finish("decoder", x).value();
  }

  void select(Context&, std::span<const int64_t> from) override {
    const auto choose = [&](std::vector<int64_t>& of_rows) {
      std::vector<int64_t> chosen;
      chosen.reserve(from.size());
      for (const int64_t r : from) {
        LMX_CHECK(r >= 0 && r < static_cast<int64_t>(of_rows.size()), "row ", r, " of ", of_rows.size());
        chosen.push_back(of_rows[static_cast<size_t>(r)]);
      }
      of_rows = std::move(chosen);
    };
    choose(sentence_);
    for (std::vector<int64_t>& rows : from_) choose(rows);
  }

 private:
  Var layer(Context& ctx, const Network& network, int64_t l, const Var& input) {
    const std::string p = str("decoder.", l, '.');
    const std::string self = p + "self", cross = p + "cross", ffn = p + "ffn";
    Var x = network.sublayer(self, input, {}, [&](const Var& in) {
      std::vector<Tensor>& written = written_[static_cast<size_t>(l)];
      written.push_back(network.linear(self + ".qkv", in).value());
      return network.branch(self + ".out", attend(ctx, written.back(), [&](int64_t row, auto&& add) {
                              for (size_t t = 0; t < written.size(); ++t)
                                add(written[t], 3 * from_[t][static_cast<size_t>(row)] + 1);
                            }));
    });
    x = network.sublayer(cross, x, {}, [&](const Var& in) {
      const Tensor& kv = source_kv_[static_cast<size_t>(l)];
      const Tensor q = network.linear(cross + ".q", in).value();
      return network.branch(cross + ".out", attend(ctx, q, [&](int64_t row, auto&& add) {
                              const auto b = static_cast<size_t>(sentence_[static_cast<size_t>(row)]);
                              for (int64_t j = source_.segments.begin[b]; j < source_.segments.begin[b + 1]; ++j)
                                add(kv, 2 * j);
                            }));
    });
    return network.sublayer(ffn, x, {}, [&](const Var& in) { return network.feed_forward(ffn, in, {}); });
  }

  // Attention of every row's query, the first d columns of q. find(row, add) calls add(tensor, i) for each key, whose
  // first element is element i d of the tensor. The values of a key follow it.
  template <class Find>
  Var attend(Context& ctx, const Tensor& q, Find&& find) const {
    std::vector<const void*> keys;
    std::vector<int64_t> begin{0};
    for (int64_t r = 0; r < q.dim(0); ++r) {
      find(r, [&](const Tensor& from, int64_t i) {
        keys.push_back(static_cast<const char*>(from.raw()) + i * config_.d * size_of(q.dtype()));
      });
      begin.push_back(static_cast<int64_t>(keys.size()));
    }
    return Var(attend_to_keys(ctx, q, config_.heads, config_.d / config_.heads, std::move(keys), std::move(begin)));
  }

  const ParameterStore& params_;
  TransformerConfig config_;
  Rows source_;
  std::vector<Tensor> source_kv_;             // by layer: (M, 2 d)
  std::vector<std::vector<Tensor>> written_;  // by layer and step: (rows of that step, 3 d) queries, keys, values
  std::vector<std::vector<int64_t>> from_;    // by step: for each current row, its row in that step
  std::vector<int64_t> sentence_;             // (rows)
};

}  // namespace

std::unique_ptr<Decoding> start_decoding(Context& ctx, const ParameterStore& params, const TransformerConfig& config,
                                         const Tensor& source, const std::vector<int64_t>& lengths) {
  return std::make_unique<TransformerDecoding>(ctx, params, config, source, lengths);
}

}  // namespace lmx::transformer
