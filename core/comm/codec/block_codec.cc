// Codecs of vectors as codecs of blocks.
#include <cstdint>
#include <utility>

#include "comm/codec/codecs.h"
#include "lmx/error.h"
#include "lmx/row_sync.h"

namespace lmx::comm {
namespace {

constexpr MemClass kClass = MemClass::communication;
constexpr uintptr_t kAlignment = 16;

bool aligned(const Tensor& t) {
  return reinterpret_cast<uintptr_t>(t.raw()) % kAlignment == 0;
}

// A block begins at any byte of a message, and a vector at an aligned one.
class BlockCodec final : public Codec {
 public:
  BlockCodec(const char* name, std::unique_ptr<VectorCodec> own) : name_(name), own_(std::move(own)) {}
  const char* name() const override { return name_; }
  bool feedback() const override { return own_->feedback() > 0; }
  int64_t bytes(int64_t rows, int64_t width) const override { return rows * width > 0 ? own_->bytes(rows * width) : 0; }

  void encode(Context& ctx, const Tensor& values, Tensor encoded) const override {
    if (values.numel() == 0) return;
    check(values.numel(), encoded);
    Tensor to = aligned(encoded) ? encoded : encoded.like(kClass);
    own_->encode(ctx, values.reshape({-1}), to);
    if (!aligned(encoded)) encoded.copy_from(to);
  }
  void decode(Context& ctx, const Tensor& encoded, const BlockPlace& to) const override {
    if (to.rows * to.columns == 0) return;
    Tensor values = decoded_of(ctx, encoded, to.rows * to.columns);
    run_kernel(ctx, CopyRows<float>{{values.data<float>(), to.columns}, {}, rows_of(to), to.rows, to.columns});
  }
  void add(Context& ctx, const Tensor& encoded, const BlockPlace& sum) const override {
    if (sum.rows * sum.columns == 0) return;
    Tensor values = decoded_of(ctx, encoded, sum.rows * sum.columns);
    run_kernel(ctx,
               CopyRows<float>{rows_of(sum), {values.data<float>(), sum.columns}, rows_of(sum), sum.rows, sum.columns});
  }
  void measure(Context& ctx, const Tensor& encoded, const Tensor& values, Tensor sums, Tensor lost) const override {
    const int64_t n = values.numel();
    if (n == 0) return;
    const Tensor decoded = decoded_of(ctx, encoded, n);
    run_kernel(ctx, Measure<PlainCode, float>{{},
                                              reinterpret_cast<const std::byte*>(std::as_const(decoded).raw()),
                                              {values.data<float>(), lost.defined() ? lost.data<float>() : nullptr, n,
                                               1, sums.data<double>()}});
    const auto kept = static_cast<float>(own_->feedback());
    if (lost.defined() && kept != 1) run_kernel(ctx, ScaleRows<float>{{lost.data<float>(), 1}, n, 1, kept});
  }

 private:
  static RowsAt<float> rows_of(const BlockPlace& place) {
    Tensor t = place.tensor;
    const int64_t width = row_width(t.shape());
    return {t.data<float>() + place.row * width, width, place.column, place.at.data()};
  }
  void check(int64_t n, const Tensor& encoded) const {
    LMX_CHECK(encoded.numel() == own_->bytes(n), name_, " block of ", n, " values in ", describe(encoded));
  }
  Tensor decoded_of(Context& ctx, const Tensor& encoded, int64_t n) const {
    check(n, encoded);
    Tensor values = ctx.empty({n}, DType::f32, kClass);
    own_->decode(ctx, aligned(encoded) ? encoded : encoded.clone(kClass), values);
    return values;
  }

  const char* name_;
  std::unique_ptr<VectorCodec> own_;
};

}  // namespace

std::unique_ptr<Codec> block_codec(const char* name, std::unique_ptr<VectorCodec> own) {
  return std::make_unique<BlockCodec>(name, std::move(own));
}

}  // namespace lmx::comm
