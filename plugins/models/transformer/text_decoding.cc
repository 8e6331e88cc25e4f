// Texts of a language model, read and generated one position at a time. Each layer caches the keys and values of all
// positions, so that a step multiplies one row by the weights and attends to the cached positions.
#include "decoding.h"
#include "decoding_kernels.h"
#include "lmx/ops.h"

namespace lmx::transformer {
namespace {

// A layer's keys and values, both (rows * heads * capacity, size): for each row and head the memory for `capacity`
// positions, whose layout AttendText describes. Each token reads both from front to back; this is its cost besides the
// weights.
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
    const Tensor words = Tensor::from<int32_t>(quiet.host, {rows_}, ids);
    Var x = network.embed(config_.target_table(), words, std::vector<int64_t>(ids.size(), length_));
    for (int64_t l = 0; l < config_.decoder_layers; ++l) x = layer(quiet, network, l, x);
    ++length_;
    return network.finish("decoder", x).value();
  }

  void select(Context& ctx, std::span<const int64_t> from) override {
    for (const int64_t r : from) LMX_CHECK(r >= 0 && r < rows_, "row ", r, " of ", rows_);
    rows_ = static_cast<int64_t>(from.size());
    const int64_t block = config_.heads * capacity_;
    for (Kept& kept : layers_) {
      for (Tensor* tensor : {&kept.keys, &kept.values}) {
        Tensor chosen = ctx.empty({rows_ * block, tensor->dim(1)}, tensor->dtype());
        for (int64_t r = 0; r < rows_; ++r)
          rows_at(chosen, r, block).copy_from(rows_at(*tensor, from[static_cast<size_t>(r)], block));
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
    const auto larger = [&](const Tensor& old) {
      Tensor wide = ctx.zeros({pairs * capacity, size}, type);
      for (int64_t p = 0; p < pairs && capacity_ > 0; ++p)
        wide.slice(p * capacity, p * capacity + capacity_).copy_from(rows_at(old, p, capacity_));
      return wide;
    };
    for (Kept& kept : layers_) kept = {larger(kept.keys), larger(kept.values)};
    capacity_ = capacity;
  }

  Var layer(Context& ctx, const Network& network, int64_t l, const Var& input) {
    const std::string self = str("decoder.", l, ".self"), ffn = str("decoder.", l, ".ffn");
    const Var x = network.sublayer(self, input, {}, [&](const Var& in) {
      const Tensor qkv = network.linear(self + ".qkv", in).value();
      return network.branch(self + ".out", Var(attend(ctx, qkv, layers_[static_cast<size_t>(l)])));
    });
    return network.sublayer(ffn, x, {}, [&](const Var& in) { return network.feed_forward(ffn, in, {}); });
  }

  // Stores the keys and values of qkv (rows, 3 d) and attends with its queries: (rows, d).
  Tensor attend(Context& ctx, const Tensor& qkv, Kept& kept) const {
    Tensor y = ctx.empty({rows_, config_.d}, qkv.dtype());
    const auto typed = [&](auto zero) {
      using T = decltype(zero);
      run_kernel(ctx, AttendText<T>{qkv.data<T>(), kept.keys.data<T>(), kept.values.data<T>(), y.data<T>(), rows_,
                                    config_.heads, config_.d / config_.heads, length_, capacity_});
    };
    qkv.dtype() == DType::f64 ? typed(double{}) : typed(float{});
    return y;
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
