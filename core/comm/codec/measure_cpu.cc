#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "comm/codec/codecs_cpu.h"

namespace lmx::comm {
namespace {

constexpr int kLanes = 8;

struct Counts {
  int64_t underflow = 0, overflow = 0;
  double error = 0, norm = 0;
};

// Parallel sums over the values of one strip, for which f32 and i32 are sufficient.
struct Lanes {
  __m256 error = _mm256_setzero_ps(), norm = _mm256_setzero_ps();
  __m256i underflow = _mm256_setzero_si256(), overflow = _mm256_setzero_si256();

  // Returns before - after, or zero if one of them is not finite.
  __m256 compare(__m256 before, __m256 after) {
    const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF)), infinity = _mm256_set1_ps(INFINITY);
    const __m256 kept = _mm256_cmp_ps(_mm256_and_ps(after, no_sign), infinity, _CMP_LT_OQ);
    const __m256 given = _mm256_cmp_ps(_mm256_and_ps(before, no_sign), infinity, _CMP_LT_OQ);
    const __m256 vanished = _mm256_and_ps(_mm256_cmp_ps(before, _mm256_setzero_ps(), _CMP_NEQ_UQ),
                                          _mm256_cmp_ps(after, _mm256_setzero_ps(), _CMP_EQ_OQ));
    const __m256 finite = _mm256_and_ps(kept, given);
    const __m256 value = _mm256_and_ps(before, finite), lost = _mm256_and_ps(_mm256_sub_ps(before, after), finite);
    error = _mm256_fmadd_ps(lost, lost, error);
    norm = _mm256_fmadd_ps(value, value, norm);
    // A mask that is set has the integer value -1.
    underflow = _mm256_sub_epi32(underflow, _mm256_castps_si256(vanished));
    overflow = _mm256_add_epi32(_mm256_add_epi32(overflow, _mm256_set1_epi32(1)), _mm256_castps_si256(kept));
    return lost;
  }

  Counts sum() const {
    float e[kLanes], n[kLanes];
    int32_t under[kLanes], over[kLanes];
    _mm256_storeu_ps(e, error);
    _mm256_storeu_ps(n, norm);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(under), underflow);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(over), overflow);
    Counts c;
    for (int k = 0; k < kLanes; ++k) {
      c.error += static_cast<double>(e[k]);
      c.norm += static_cast<double>(n[k]);
      c.underflow += under[k];
      c.overflow += over[k];
    }
    return c;
  }
};

Counts compare(const float* before, const float* after, float* residual, int64_t n) {
  Lanes lanes;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m256 lost = lanes.compare(_mm256_loadu_ps(before + i), _mm256_loadu_ps(after + i));
    if (residual) _mm256_storeu_ps(residual + i, lost);
  }
  if (i < n) {
    float b[kLanes] = {}, a[kLanes] = {};
    std::copy(before + i, before + n, b);
    std::copy(after + i, after + n, a);
    _mm256_storeu_ps(b, lanes.compare(_mm256_loadu_ps(b), _mm256_loadu_ps(a)));
    if (residual) std::copy(b, b + (n - i), residual + i);
  }
  return lanes.sum();
}

}  // namespace

void measure_strips(const Measured<float>& a, const DecodeStrip& decode) {
  if (a.rows * a.width == 0) return;
  const int64_t strip = strip_rows(a.width), strips = (a.rows + strip - 1) / strip;
  std::vector<Counts> counts(static_cast<size_t>(strips));
  parallel_for(strips, 8, [&](int64_t begin, int64_t end) {
    std::vector<float> decoded(static_cast<size_t>(strip * a.width));
    for (int64_t s = begin; s < end; ++s) {
      const int64_t first = s * strip, last = std::min(a.rows, first + strip), at = first * a.width;
      decode(first, last, decoded.data());
      counts[static_cast<size_t>(s)] =
          compare(a.values + at, decoded.data(), a.lost ? a.lost + at : nullptr, (last - first) * a.width);
    }
  });
  for (const Counts& c : counts) {
    a.sums[0] += static_cast<double>(c.underflow);
    a.sums[1] += static_cast<double>(c.overflow);
    a.sums[2] += c.error;
    a.sums[3] += c.norm;
  }
}

}  // namespace lmx::comm
