// The list of codecs and their settings.
#include "base/text.h"
#include "comm/codec/codecs.h"
#include "lmx/error.h"
#include "lmx/row_sync.h"

namespace lmx {

Codec::~Codec() = default;

void CodecConfig::fields(Fields& f) {
  f.choice("kind", kind, {"none", "fp16", "bf16", "one_bit"}, "encoding of gradients for the exchange");
  f.field("scale", scale, "fp16: factor before rounding, divided out after", {1.0 / 65536, 65504});
  f.choice("reduce", reduce, {"fp16", "fp32"}, "fp16: type in which ranks' values are added");
  f.choice("residual", residual, {"rows", "none"},
           "one_bit on row-sparse gradients: keep the residual of every row that was ever sent, or discard it");
}

void CodecConfig::check(const std::string& where) const {
  const CodecConfig usual;
  const auto refuse = [&](const char* key, const std::string& value, const char* reader) {
    throw UserError(str(where, ".codec.", key, ": ", value, " is read by kind ", reader, " alone, and kind is ", kind,
                        "; leave it out, or give kind: ", reader));
  };
  if (kind != "fp16" && scale != usual.scale) refuse("scale", str(scale), "fp16");
  if (kind != "fp16" && reduce != usual.reduce) refuse("reduce", reduce, "fp16");
  if (kind != "one_bit" && residual != usual.residual) refuse("residual", residual, "one_bit");
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
  bool elementwise() const override { return Code::kElementwise; }
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

std::unique_ptr<Codec> make_codec(const CodecConfig& config) {
  const auto scale = static_cast<float>(config.scale);
  if (config.kind == "none") return comm::codec_of(comm::PlainCode());
  if (config.kind == "fp16") return comm::codec_of(comm::Fp16Code{scale, 1.0f / scale, config.reduce == "fp16"});
  if (config.kind == "bf16") return comm::codec_of(comm::Bf16Code());
  if (config.kind == "one_bit") return comm::codec_of(comm::OneBitCode());
  throw UserError(
      str("[codec] unknown kind '", config.kind, "'", did_you_mean(config.kind, {"none", "fp16", "bf16", "one_bit"})));
}

}  // namespace lmx
