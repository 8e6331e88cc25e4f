// F16C converts eight values at a time. The remaining values go through the same instructions in a padded block, so no
// result depends on the position of a value.
#include <immintrin.h>

#include <algorithm>

#include "comm/codec/codecs_cpu.h"

namespace lmx::comm {
namespace {

constexpr int kLanes = 8;

__m256 load(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
__m128i round(__m256 v) {
  return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
}
void store(uint16_t* p, __m256 v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), round(v));
}

// Calls step(from, to) for eight values at a time. `to` is read as well as written.
template <class From, class To, class Step>
void by_eight(const From* from, To* to, int64_t n, Step&& step) {
  parallel_for((n + kLanes - 1) / kLanes, kCodecGrain / kLanes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * kLanes; i + kLanes <= std::min(n, end * kLanes); i += kLanes) step(from + i, to + i);
    const int64_t whole = n / kLanes * kLanes;
    if (end * kLanes <= n) return;
    From last[kLanes] = {};
    To out[kLanes] = {};
    std::copy(from + whole, from + n, last);
    std::copy(to + whole, to + n, out);
    step(last, out);
    std::copy(out, out + (n - whole), to + whole);
  });
}

void encode(Context&, const Encode<Fp16Code, float>& a) {
  const __m256 scale = _mm256_set1_ps(a.code().scale);
  by_eight(a.values, reinterpret_cast<uint16_t*>(a.encoded), a.rows * a.width,
           [&](const float* from, uint16_t* to) { store(to, _mm256_mul_ps(_mm256_loadu_ps(from), scale)); });
}

void decode_values(const Fp16Code& code, const uint16_t* in, float* out, int64_t n) {
  const __m256 inverse = _mm256_set1_ps(code.inverse);
  by_eight(in, out, n,
           [&](const uint16_t* from, float* to) { _mm256_storeu_ps(to, _mm256_mul_ps(load(from), inverse)); });
}
void decode(Context&, const Decode<Fp16Code, float>& a) {
  decode_values(a.code(), reinterpret_cast<const uint16_t*>(a.encoded), a.to.row(0), a.rows * a.width);
}

// In f16, the scaled sum is a multiple of f16's step size. Scaling the stored f32 sum up again reproduces that value
// except for f32's rounding error, which rounding to f16 removes.
void add(Context&, const AddDecoded<Fp16Code, float>& a) {
  const __m256 scale = _mm256_set1_ps(a.code().scale), inverse = _mm256_set1_ps(a.code().inverse);
  const auto* from16 = reinterpret_cast<const uint16_t*>(a.encoded);
  if (!a.code().reduce_in_fp16) {
    return by_eight(from16, a.sum.row(0), a.rows * a.width, [&](const uint16_t* from, float* to) {
      _mm256_storeu_ps(to, _mm256_fmadd_ps(load(from), inverse, _mm256_loadu_ps(to)));
    });
  }
  by_eight(from16, a.sum.row(0), a.rows * a.width, [&](const uint16_t* from, float* to) {
    const __m256 before = _mm256_cvtph_ps(round(_mm256_mul_ps(_mm256_loadu_ps(to), scale)));
    const __m256 after = _mm256_cvtph_ps(round(_mm256_add_ps(before, load(from))));
    _mm256_storeu_ps(to, _mm256_mul_ps(after, inverse));
  });
}

void measure(Context&, const Measure<Fp16Code, float>& a) {
  const auto* in = reinterpret_cast<const uint16_t*>(a.encoded);
  measure_strips(a.of, [&](int64_t first, int64_t last, float* out) {
    decode_values(a.code(), in + first * a.of.width, out, (last - first) * a.of.width);
  });
}

const KernelAdder adder(Device::Kind::cpu, encode, decode, add, measure);

}  // namespace
}  // namespace lmx::comm
