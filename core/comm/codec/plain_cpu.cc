// The codecs that only copy or truncate values.
#include <cstring>

#include "autograd/gradient_sums.h"
#include "backend/convert.h"
#include "comm/codec/codecs_cpu.h"

namespace lmx::comm {
namespace {

void add_values(const float* x, float* sum, int64_t n) {
  add_row(sum, x, n);
}
LMX_SIMD void add_values(const bfloat16* x, float* sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<float>(x[i]);
}

void encode_values(PlainCode, const float* values, std::byte* out, int64_t n) {
  if (n > 0) std::memcpy(out, values, static_cast<size_t>(4 * n));
}
void encode_values(Bf16Code, const float* values, std::byte* out, int64_t n) {
  to_bf16(values, reinterpret_cast<bfloat16*>(out), n);
}
void decode_values(PlainCode, const std::byte* in, float* out, int64_t n) {
  if (n > 0) std::memcpy(out, in, static_cast<size_t>(4 * n));
}
void decode_values(Bf16Code, const std::byte* in, float* out, int64_t n) {
  from_bf16(reinterpret_cast<const bfloat16*>(in), out, n);
}

template <class Code>
void encode(Context&, const Encode<Code, float>& a) {
  encode_values(a.code(), a.values, a.encoded, a.rows * a.width);
}
template <class Code>
void decode(Context&, const Decode<Code, float>& a) {
  decode_values(a.code(), a.encoded, a.to.row(0), a.rows * a.width);
}
template <class Code, class Encoded>
void add(Context&, const AddDecoded<Code, float>& a) {
  const auto* x = reinterpret_cast<const Encoded*>(a.encoded);
  float* sum = a.sum.row(0);
  parallel_for(a.rows * a.width, kCodecGrain,
               [&](int64_t begin, int64_t end) { add_values(x + begin, sum + begin, end - begin); });
}
template <class Code, int64_t kBytes>
void measure(Context&, const Measure<Code, float>& a) {
  measure_strips(a.of, [&](int64_t first, int64_t last, float* out) {
    decode_values(a.code(), a.encoded + kBytes * first * a.of.width, out, (last - first) * a.of.width);
  });
}

const KernelAdder adder(Device::Kind::cpu, encode<PlainCode>, decode<PlainCode>, add<PlainCode, float>,
                        measure<PlainCode, 4>, encode<Bf16Code>, decode<Bf16Code>, add<Bf16Code, bfloat16>,
                        measure<Bf16Code, 2>);

}  // namespace
}  // namespace lmx::comm
