// The list of codecs, and the two that only copy or truncate values.
#include "base/text.h"
#include "lmx/codec.h"

#include <cstring>

#include "backend/convert.h"
#include "comm/codecs.h"
#include "lmx/error.h"
#include "lmx/kernels.h"
#include "lmx/parallel.h"

namespace lmx {

Codec::~Codec() = default;

void CodecConfig::fields(Fields& f) {
  f.choice("kind", kind, {"none", "fp16", "bf16", "one_bit"}, "how gradients are written for the wire");
  f.field("scale", scale, "fp16: factor before rounding, divided out after", {1.0 / 65536, 65504});
  f.choice("reduce", reduce, {"fp16", "fp32"}, "fp16: type in which ranks' values are added");
  f.choice("residual", residual, {"rows", "none"},
           "one_bit on row-sparse gradients: keep what is lost for every row that was ever sent, or forget it");
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

namespace {

LMX_SIMD void add_floats(const float* x, float* sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
}
LMX_SIMD void add_bf16(const bfloat16* x, float* sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<float>(x[i]);
}

class Plain final : public Codec {
 public:
  const char* name() const override { return "none"; }
  int64_t bytes(int64_t rows, int64_t width) const override { return 4 * rows * width; }
  void encode(const float* values, int64_t rows, int64_t width, std::byte* out) const override {
    if (rows * width > 0) std::memcpy(out, values, static_cast<size_t>(bytes(rows, width)));
  }
  void decode_rows(const std::byte* in, int64_t, int64_t width, int64_t first, int64_t last,
                   float* out) const override {
    if (last * width > first * width)
      std::memcpy(out, in + bytes(first, width), static_cast<size_t>(bytes(last - first, width)));
  }
  void add(const std::byte* in, int64_t rows, int64_t width, float* sum) const override {
    const auto* x = reinterpret_cast<const float*>(in);
    parallel_for(rows * width, comm::kCodecGrain,
                 [&](int64_t begin, int64_t end) { add_floats(x + begin, sum + begin, end - begin); });
  }
};

class Brain final : public Codec {
 public:
  const char* name() const override { return "bf16"; }
  int64_t bytes(int64_t rows, int64_t width) const override { return 2 * rows * width; }
  void encode(const float* values, int64_t rows, int64_t width, std::byte* out) const override {
    to_bf16(values, reinterpret_cast<bfloat16*>(out), rows * width);
  }
  void decode_rows(const std::byte* in, int64_t, int64_t width, int64_t first, int64_t last,
                   float* out) const override {
    from_bf16(reinterpret_cast<const bfloat16*>(in) + first * width, out, (last - first) * width);
  }
  void add(const std::byte* in, int64_t rows, int64_t width, float* sum) const override {
    const auto* x = reinterpret_cast<const bfloat16*>(in);
    parallel_for(rows * width, comm::kCodecGrain,
                 [&](int64_t begin, int64_t end) { add_bf16(x + begin, sum + begin, end - begin); });
  }
};

}  // namespace

std::unique_ptr<Codec> make_codec(const CodecConfig& config) {
  if (config.kind == "none") return std::make_unique<Plain>();
  if (config.kind == "fp16") return comm::make_fp16(static_cast<float>(config.scale), config.reduce == "fp16");
  if (config.kind == "bf16") return std::make_unique<Brain>();
  if (config.kind == "one_bit") return comm::make_one_bit();
  throw UserError(
      str("[codec] unknown kind '", config.kind, "'", did_you_mean(config.kind, {"none", "fp16", "bf16", "one_bit"})));
}

}  // namespace lmx
