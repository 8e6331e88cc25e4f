// Keys and values of the source are computed once for each sentence and shared by its rows. Keys and values of the
// target stay in the tensors of their steps. For each step, a row stores which row of that step it continues. Therefore
// rows of a beam can be duplicated, exchanged and dropped without a copy.
#include "decoding.h"

#include <cmath>

#include "lmx/kernels.h"
#include "lmx/parallel.h"
#include "lmx/rows.h"

namespace lmx::transformer {
namespace {

template <class T>
LMX_SIMD void score_keys(const T* q, const T* const* keys, int64_t n, int64_t size, T* scores) {
  for (int64_t j = 0; j < n; ++j) {
    T sum = 0;
    const T* key = keys[j];
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < size; ++i) sum += q[i] * key[i];
    scores[j] = sum;
  }
}

template <class T>
LMX_SIMD void add_weighted(T* __restrict y, const T* __restrict value, T weight, int64_t size) {
  for (int64_t i = 0; i < size; ++i) y[i] += weight * value[i];
}

// y (heads * size) of one query over n keys. The values of a key are stored `offset` elements after it.
template <class T>
void attend(const T* q, const std::vector<const T*>& keys, int64_t offset, int64_t heads, int64_t size, T* y) {
  const auto n = static_cast<int64_t>(keys.size());
  std::vector<T> weights(keys.size());
  std::vector<const T*> at(keys);
  std::fill_n(y, heads * size, T(0));
  for (int64_t h = 0; h < heads; ++h) {
    score_keys<T>(q + h * size, at.data(), n, size, weights.data());
    softmax_in_place(weights.data(), T(1) / std::sqrt(static_cast<T>(size)), n);
    for (int64_t j = 0; j < n; ++j) {
      const auto i = static_cast<size_t>(j);
      add_weighted<T>(y + h * size, at[i] + offset, weights[i], size);
      at[i] += size;
    }
  }
}

class TransformerDecoding final : public Decoding {
 public:
  TransformerDecoding(Context& ctx, const ParameterStore& params, const TransformerConfig& config, const Tensor& source,
                      const std::vector<int64_t>& lengths)
      : params_(params), config_(config), source_(rows_of(lengths, {})) {
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
    const Tensor words = Tensor::from<int32_t>(quiet.allocator, {rows}, ids);
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
      return network.linear(self + ".out", attend_rows(ctx, written.back(), [&](int64_t row, auto& keys) {
                              using T = std::remove_cvref_t<decltype(*keys[0])>;
                              for (size_t t = 0; t < written.size(); ++t) {
                                const int64_t r = from_[t][static_cast<size_t>(row)];
                                keys.push_back(written[t].template data<T>() + (3 * r + 1) * config_.d);
                              }
                            }));
    });
    x = network.sublayer(cross, x, {}, [&](const Var& in) {
      const Tensor& kv = source_kv_[static_cast<size_t>(l)];
      const Tensor q = network.linear(cross + ".q", in).value();
      return network.linear(cross + ".out", attend_rows(ctx, q, [&](int64_t row, auto& keys) {
                              using T = std::remove_cvref_t<decltype(*keys[0])>;
                              const auto b = static_cast<size_t>(sentence_[static_cast<size_t>(row)]);
                              for (int64_t j = source_.segments.begin[b]; j < source_.segments.begin[b + 1]; ++j) {
                                keys.push_back(kv.data<T>() + 2 * j * config_.d);
                              }
                            }));
    });
    return network.sublayer(ffn, x, {}, [&](const Var& in) { return network.feed_forward(ffn, in, {}); });
  }

  // Attention of every row's query, the first d columns of q, over the keys that `find(row, keys)` returns. The values
  // of a key are stored d elements after it.
  template <class Find>
  Var attend_rows(Context& ctx, const Tensor& q, Find&& find) const {
    Tensor y = ctx.empty({q.dim(0), config_.d}, q.dtype());
    const auto typed = [&](auto zero) {
      using T = decltype(zero);
      const int64_t size = config_.d / config_.heads;
      parallel_for(q.dim(0), 4, [&](int64_t begin, int64_t end) {
        std::vector<const T*> keys;
        for (int64_t r = begin; r < end; ++r) {
          keys.clear();
          find(r, keys);
          attend<T>(q.data<T>() + r * q.dim(1), keys, config_.d, config_.heads, size, y.data<T>() + r * config_.d);
        }
      });
    };
    if (q.dtype() == DType::f64) {
      typed(double{});
    } else {
      typed(float{});
    }
    return Var(y);
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
