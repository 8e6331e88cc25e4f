// The codecs that are built into lmx.
#include <cstdint>
#include <utility>

#include "base/text.h"
#include "comm/codec/codecs.h"
#include "lmx/error.h"
#include "lmx/row_sync.h"

namespace lmx {

Codec::~Codec() = default;
VectorCodec::~VectorCodec() = default;

LevelCodec::LevelCodec(LevelCoder coder, double feedback) : coder_(std::move(coder)), feedback_(feedback) {}
int64_t LevelCodec::bytes(int64_t n) const {
  return level_bytes(coder_, n);
}
void LevelCodec::encode(Context& ctx, const Tensor& values, Tensor encoded) const {
  encode_levels(ctx, coder_, values, encoded);
}
void LevelCodec::decode(Context& ctx, const Tensor& encoded, Tensor values) const {
  decode_levels(ctx, coder_, encoded, values);
}

std::vector<std::string> CodecConfig::warnings(const std::string& place, bool loss_scaled) const {
  if (kind != "fp16" || scale > 1 || loss_scaled) return {};
  return {str(place, " writes gradients in fp16 with scale ", number_text(scale),
              ", and this precision has no loss scale: gradients below ", 6e-8 / scale, " become 0. Give ", place,
              ".scale=1024, or ", place, ".kind=none for gradients in fp32")};
}

void CodecConfig::check_sums(const std::string& where, const std::string& why) const {
  if (reduce != CodecConfig().reduce)
    throw UserError(str(where, ".codec.reduce: ", why, ", so the codec adds nothing and reduce: ", reduce,
                        " changes nothing; leave it out"));
}

namespace comm {

const std::vector<std::string>& built_in_codecs() {
  static const std::vector<std::string> names{PlainCode::kName, Fp16Code::kName, Bf16Code::kName, OneBitCode::kName};
  return names;
}

}  // namespace comm

component::Described component::codecs() {
  Described all;
  for (const std::string& name : comm::built_in_codecs()) all.emplace_back(name, std::vector<FieldInfo>());
  for (FieldInfo& field : describe_config<CodecConfig>()) {
    const char* reader = field.name == "residual" ? comm::OneBitCode::kName : comm::Fp16Code::kName;
    if (field.name == "kind") continue;
    for (auto& [name, fields] : all)
      if (name == reader) fields.push_back(std::move(field));
  }
  return all;
}

namespace comm {
namespace {

RowsAt<float> rows_at(const BlockPlace& place) {
  Tensor t = place.tensor;
  const int64_t width = row_width(t.shape());
  return {t.data<float>() + place.row * width, width, place.column, place.at.data()};
}

std::byte* bytes_of(Tensor& t) {
  return reinterpret_cast<std::byte*>(t.data<uint8_t>());
}
const std::byte* bytes_of(const Tensor& t) {
  return reinterpret_cast<const std::byte*>(t.data<uint8_t>());
}

template <class Code>
class CodecOf final : public Codec {
 public:
  explicit CodecOf(Code code) : code_(code) {}
  const char* name() const override { return Code::kName; }
  bool columns() const override { return !Code::kElementwise; }
  bool feedback() const override { return Code::kFeedback; }
  int64_t bytes(int64_t rows, int64_t width) const override { return Code::bytes(rows, width); }

  void encode(Context& ctx, const Tensor& values, Tensor encoded) const override {
    const auto [rows, width] = size(values.dim(0), row_width(values.shape()), encoded);
    run_kernel(ctx, Encode<Code, float>{{code_}, values.data<float>(), bytes_of(encoded), rows, width});
  }
  void decode(Context& ctx, const Tensor& encoded, const BlockPlace& to) const override {
    const auto [rows, width] = size(to, encoded);
    run_kernel(ctx, Decode<Code, float>{{code_}, bytes_of(encoded), rows_at(to), rows, width});
  }
  void add(Context& ctx, const Tensor& encoded, const BlockPlace& sum) const override {
    const auto [rows, width] = size(sum, encoded);
    run_kernel(ctx, AddDecoded<Code, float>{{code_}, bytes_of(encoded), rows_at(sum), rows, width});
  }
  void measure(Context& ctx, const Tensor& encoded, const Tensor& values, Tensor sums, Tensor lost) const override {
    const auto [rows, width] = size(values.dim(0), row_width(values.shape()), encoded);
    run_kernel(ctx, Measure<Code, float>{{code_},
                                         bytes_of(encoded),
                                         {values.data<float>(), lost.defined() ? lost.data<float>() : nullptr,
                                          Code::kElementwise ? rows * width : rows, Code::kElementwise ? 1 : width,
                                          sums.data<double>()}});
  }

 private:
  struct Size {
    int64_t rows, width;
  };
  Size size(int64_t rows, int64_t width, const Tensor& encoded) const {
    LMX_CHECK(encoded.numel() == bytes(rows, width), Code::kName, " block (", rows, ", ", width, ") in ",
              describe(encoded));
    return {rows, width};
  }
  Size size(const BlockPlace& place, const Tensor& encoded) const {
    LMX_CHECK(!Code::kElementwise || (place.columns == row_width(place.tensor.shape()) && !place.at.data()),
              Code::kName, " block is not contiguous in ", describe(place.tensor));
    return size(place.rows, place.columns, encoded);
  }

  Code code_;
};

template <class Code>
std::unique_ptr<Codec> codec_of(Code code) {
  return std::make_unique<CodecOf<Code>>(code);
}

}  // namespace
}  // namespace comm

BlockPlace::BlockPlace(Tensor t) : tensor(std::move(t)), rows(tensor.dim(0)), columns(row_width(tensor.shape())) {}

std::unique_ptr<Codec> comm::built_in_codec(const CodecConfig& config) {
  const auto scale = static_cast<float>(config.scale);
  if (config.kind == "none") return comm::codec_of(comm::PlainCode());
  if (config.kind == "fp16") return comm::codec_of(comm::Fp16Code{scale, 1.0f / scale, config.reduce == "fp16"});
  if (config.kind == "bf16") return comm::codec_of(comm::Bf16Code());
  if (config.kind == "one_bit") return comm::codec_of(comm::OneBitCode());
  return nullptr;
}

}  // namespace lmx

namespace lmx::comm {

// Codecs of vectors as codecs of blocks.

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
