// Compression-scaling (Patwary 2018, section III-C): f16(scale v). F16C converts eight values at a time. The remaining
// values go through the same instructions in a padded block, so no result depends on the position of a value.
#include <immintrin.h>

#include <algorithm>

#include "comm/codecs.h"
#include "lmx/parallel.h"

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

class Half final : public Codec {
 public:
  Half(float scale, bool reduce_in_fp16) : scale_(scale), inverse_(1.0f / scale), fp16_(reduce_in_fp16) {}
  const char* name() const override { return "fp16"; }
  int64_t bytes(int64_t rows, int64_t width) const override { return 2 * rows * width; }

  void encode(const float* values, int64_t rows, int64_t width, std::byte* out) const override {
    const __m256 scale = _mm256_set1_ps(scale_);
    by_eight(values, reinterpret_cast<uint16_t*>(out), rows * width,
             [&](const float* from, uint16_t* to) { store(to, _mm256_mul_ps(_mm256_loadu_ps(from), scale)); });
  }

  void decode_rows(const std::byte* in, int64_t, int64_t width, int64_t first, int64_t last,
                   float* out) const override {
    const __m256 inverse = _mm256_set1_ps(inverse_);
    by_eight(reinterpret_cast<const uint16_t*>(in) + first * width, out, (last - first) * width,
             [&](const uint16_t* from, float* to) { _mm256_storeu_ps(to, _mm256_mul_ps(load(from), inverse)); });
  }

  // In f16, the scaled sum is a multiple of f16's step size. Scaling the stored f32 sum up again reproduces that value
  // except for f32's rounding error, which rounding to f16 removes.
  void add(const std::byte* in, int64_t rows, int64_t width, float* sum) const override {
    const __m256 scale = _mm256_set1_ps(scale_), inverse = _mm256_set1_ps(inverse_);
    const auto* from16 = reinterpret_cast<const uint16_t*>(in);
    if (!fp16_) {
      return by_eight(from16, sum, rows * width, [&](const uint16_t* from, float* to) {
        _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), _mm256_mul_ps(load(from), inverse)));
      });
    }
    by_eight(from16, sum, rows * width, [&](const uint16_t* from, float* to) {
      const __m256 before = _mm256_cvtph_ps(round(_mm256_mul_ps(_mm256_loadu_ps(to), scale)));
      const __m256 after = _mm256_cvtph_ps(round(_mm256_add_ps(before, load(from))));
      _mm256_storeu_ps(to, _mm256_mul_ps(after, inverse));
    });
  }

 private:
  float scale_, inverse_;
  bool fp16_;
};

}  // namespace

std::unique_ptr<Codec> make_fp16(float scale, bool reduce_in_fp16) {
  return std::make_unique<Half>(scale, reduce_in_fp16);
}

}  // namespace lmx::comm
