// Texts of a language model, read and generated one position at a time. Each layer caches the keys and values of all
// positions, so that a step multiplies one row by the weights and attends to the cached positions.
#include <cmath>
#include <cstring>

#include "decoding.h"
#include "lmx/kernels.h"
#include "lmx/parallel.h"
#include "lmx/rows.h"

namespace lmx::transformer {
namespace {

// Number of positions whose keys are stored together: element i of all of them, then element i + 1.
constexpr int64_t kPanel = 64;

// Scores of the positions of a panel: q (size) times keys (size, kPanel).
template <class T>
LMX_SIMD void score_panel(const T* __restrict q, const T* __restrict keys, int64_t size, T* __restrict scores) {
  T sums[kPanel] = {};
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t t = 0; t < kPanel; ++t) sums[t] += q[i] * keys[i * kPanel + t];
  }
  for (int64_t t = 0; t < kPanel; ++t) scores[t] = sums[t];
}

// y (size) = weights (n) times values (n, size).
template <class T>
LMX_SIMD void add_values(const T* weights, const T* values, int64_t size, T* y, int64_t n) {
  for (int64_t i = 0; i < size; ++i) y[i] = 0;
  int64_t t = 0;
  for (; t + 4 <= n; t += 4) {
    const T* v = values + t * size;
    const T a = weights[t], b = weights[t + 1], c = weights[t + 2], d = weights[t + 3];
    for (int64_t i = 0; i < size; ++i)
      y[i] += (a * v[i] + b * v[i + size]) + (c * v[i + 2 * size] + d * v[i + 3 * size]);
  }
  for (; t < n; ++t) {
    for (int64_t i = 0; i < size; ++i) y[i] += weights[t] * values[t * size + i];
  }
}

// A layer's keys (rows * heads, capacity / kPanel, size, kPanel) and values (rows * heads, capacity, size). Each token
// reads both from front to back; this is its cost besides the weights.
struct Kept {
  Tensor keys, values;
};

class TextDecoding final : public Decoding {
 public:
  TextDecoding(const Context& ctx, const ParameterStore& params, const TransformerConfig& config, int64_t rows)
      : params_(params), config_(config), rows_(rows), layers_(static_cast<size_t>(config.decoder_layers)) {
    reserve(ctx, kFirstCapacity);
  }

  Tensor step(Context& ctx, std::span<const int32_t> ids) override {
    LMX_CHECK(static_cast<int64_t>(ids.size()) == rows_, ids.size(), " words for ", rows_, " rows");
    Context quiet = silent(ctx);
    if (length_ == capacity_) reserve(quiet, 2 * capacity_);
    const Network network(quiet, params_, config_, true);
    const Tensor words = Tensor::from<int32_t>(quiet.allocator, {rows_}, ids);
    Var x = network.embed(config_.target_table(), words, std::vector<int64_t>(ids.size(), length_));
    for (int64_t l = 0; l < config_.decoder_layers; ++l) x = layer(quiet, network, l, x);
    ++length_;
    return network.finish("decoder", x).value();
  }

  void select(Context& ctx, std::span<const int64_t> from) override {
    for (const int64_t r : from) LMX_CHECK(r >= 0 && r < rows_, "row ", r, " of ", rows_);
    rows_ = static_cast<int64_t>(from.size());
    for (Kept& kept : layers_) {
      for (Tensor* tensor : {&kept.keys, &kept.values}) {
        Tensor chosen = ctx.empty({rows_ * config_.heads, tensor->dim(1)}, tensor->dtype());
        for (int64_t r = 0; r < rows_; ++r) {
          const int64_t source = from[static_cast<size_t>(r)];
          chosen.slice(r * config_.heads, (r + 1) * config_.heads)
              .copy_from(tensor->slice(source * config_.heads, (source + 1) * config_.heads));
        }
        *tensor = chosen;
      }
    }
  }

 private:
  static constexpr int64_t kFirstCapacity = kPanel;

  // Allocates memory for `capacity` positions, a multiple of kPanel. REQUIRES: the old memory is full.
  void reserve(const Context& ctx, int64_t capacity) {
    const int64_t size = config_.d / config_.heads, pairs = rows_ * config_.heads;
    const DType type = params_.at(config_.target_table()).value().dtype();
    for (Kept& kept : layers_) {
      const Kept old = kept;
      kept = {ctx.zeros({pairs, capacity * size}, type), ctx.zeros({pairs, capacity * size}, type)};
      if (capacity_ == 0) continue;
      copy_rows(old.keys, kept.keys);
      copy_rows(old.values, kept.values);
    }
    capacity_ = capacity;
  }

  // Copies each row of `from` to the beginning of the same row of `to`.
  static void copy_rows(const Tensor& from, Tensor& to) {
    const size_t element = size_of(from.dtype()), old = static_cast<size_t>(from.dim(1)) * element;
    for (int64_t r = 0; r < from.dim(0); ++r) {
      std::memcpy(static_cast<std::byte*>(to.raw()) + static_cast<size_t>(r * to.dim(1)) * element,
                  static_cast<const std::byte*>(from.raw()) + static_cast<size_t>(r) * old, old);
    }
  }

  Var layer(Context& ctx, const Network& network, int64_t l, const Var& input) {
    const std::string self = str("decoder.", l, ".self"), ffn = str("decoder.", l, ".ffn");
    const Var x = network.sublayer(self, input, {}, [&](const Var& in) {
      const Tensor qkv = network.linear(self + ".qkv", in).value();
      return network.linear(self + ".out", Var(attend(ctx, qkv, layers_[static_cast<size_t>(l)])));
    });
    return network.sublayer(ffn, x, {}, [&](const Var& in) { return network.feed_forward(ffn, in, {}); });
  }

  // Stores the keys and values of qkv (rows, 3 d) and attends with its queries: (rows, d).
  Tensor attend(Context& ctx, const Tensor& qkv, Kept& kept) const {
    Tensor y = ctx.empty({rows_, config_.d}, qkv.dtype());
    if (qkv.dtype() == DType::f64) {
      attend_typed<double>(qkv, kept, y);
    } else {
      attend_typed<float>(qkv, kept, y);
    }
    return y;
  }

  template <class T>
  void attend_typed(const Tensor& qkv, Kept& kept, Tensor& y) const {
    const int64_t d = config_.d, heads = config_.heads, size = d / heads, seen = length_ + 1;
    const T scale = T(1) / std::sqrt(static_cast<T>(size));
    constexpr int64_t kGrain = 1 << 15;  // smallest number of multiply-adds for a thread
    parallel_for(rows_ * heads, std::max<int64_t>(1, kGrain / (2 * seen * size)), [&](int64_t begin, int64_t end) {
      const int64_t panels = (seen + kPanel - 1) / kPanel;
      std::vector<T> weights(static_cast<size_t>(panels * kPanel));
      for (int64_t p = begin; p < end; ++p) {
        const T* q = qkv.data<T>() + p / heads * 3 * d + p % heads * size;
        T* keys = kept.keys.data<T>() + p * size * capacity_;
        T* values = kept.values.data<T>() + p * capacity_ * size;
        T* own = keys + length_ / kPanel * size * kPanel + length_ % kPanel;
        for (int64_t i = 0; i < size; ++i) own[i * kPanel] = q[d + i];
        std::copy_n(q + 2 * d, size, values + length_ * size);
        for (int64_t n = 0; n < panels; ++n)
          score_panel<T>(q, keys + n * size * kPanel, size, weights.data() + n * kPanel);
        softmax_in_place(weights.data(), scale, seen);
        add_values<T>(weights.data(), values, size, y.data<T>() + p * size, seen);
      }
    });
  }

  const ParameterStore& params_;
  TransformerConfig config_;
  int64_t rows_, length_ = 0, capacity_ = 0;  // number of texts; cached positions, and memory for them
  std::vector<Kept> layers_;
};

}  // namespace

std::unique_ptr<Decoding> start_text(const Context& ctx, const ParameterStore& params, const TransformerConfig& config,
                                     int64_t rows) {
  return std::make_unique<TextDecoding>(ctx, params, config, rows);
}

}  // namespace lmx::transformer
