// Counts the quantisation error while blocks are encoded.
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "comm/codecs.h"
#include "lmx/error.h"

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

void account(const Codec& codec, const Block& block, const std::byte* encoded, CodecHealth& health, float* residual) {
  const float* values = block.values;
  int64_t rows = block.rows, width = block.width;
  if (rows * width == 0) return;
  if (codec.elementwise()) rows *= width, width = 1;
  const int64_t strip = strip_rows(width);
  std::vector<Counts> counts(static_cast<size_t>((rows + strip - 1) / strip));
  decode_strips(codec, encoded, rows, width, [&](int64_t first, int64_t last, const float* decoded) {
    const int64_t at = first * width;
    counts[static_cast<size_t>(first / strip)] =
        compare(values + at, decoded, residual ? residual + at : nullptr, (last - first) * width);
  });
  health.values += rows * width;
  for (const Counts& c : counts) {
    health.underflow += c.underflow;
    health.overflow += c.overflow;
    health.error += c.error;
    health.norm += c.norm;
  }
}

}  // namespace lmx::comm

namespace lmx {

void CodecHealth::add(const CodecHealth& other) {
  values += other.values;
  underflow += other.underflow;
  overflow += other.overflow;
  error += other.error;
  norm += other.norm;
  residual += other.residual;
}

std::vector<std::pair<std::string, double>> health_values(const std::map<std::string, CodecHealth>& health) {
  std::vector<std::pair<std::string, double>> values;
  for (const auto& [param, h] : health) {
    const std::string name = str(kHealthPrefix, param, "/");
    values.emplace_back(name + "entries", static_cast<double>(h.values));
    values.emplace_back(name + "underflow", static_cast<double>(h.underflow));
    values.emplace_back(name + "overflow", static_cast<double>(h.overflow));
    values.emplace_back(name + "relative_error", h.relative_error());
    values.emplace_back(name + "norm", std::sqrt(h.norm));
    if (h.residual > 0) values.emplace_back(name + "residual_norm", std::sqrt(h.residual));
  }
  return values;
}

std::map<std::string, CodecHealth> health_in(const std::map<std::string, double>& values) {
  std::map<std::string, CodecHealth> health;
  const auto value = [&](const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? 0.0 : found->second;
  };
  for (auto it = values.lower_bound(std::string(kHealthPrefix)); it != values.end(); ++it) {
    const std::string& key = it->first;
    if (!key.starts_with(kHealthPrefix)) break;
    if (!key.ends_with("/entries")) continue;
    const std::string stem = key.substr(0, key.rfind('/') + 1);
    const double norm = value(stem + "norm"), error = value(stem + "relative_error") * norm,
                 residual = value(stem + "residual_norm");
    CodecHealth& h = health[stem.substr(kHealthPrefix.size(), stem.size() - kHealthPrefix.size() - 1)];
    h.values = static_cast<int64_t>(it->second);
    h.underflow = static_cast<int64_t>(value(stem + "underflow"));
    h.overflow = static_cast<int64_t>(value(stem + "overflow"));
    h.norm = norm * norm;
    h.error = error * error;
    h.residual = residual * residual;
  }
  return health;
}

}  // namespace lmx
