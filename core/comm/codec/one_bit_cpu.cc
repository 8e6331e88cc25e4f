#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "comm/codec/codecs_cpu.h"

namespace lmx::comm {
namespace {

constexpr int64_t kLanes = 8;

constexpr int64_t kStrip = OneBitCode::kStrip;

// Sums of the non-negative and the negative entries of each column.
struct Signs {
  explicit Signs(size_t n) : above(n), below(n), count(n) {}
  std::vector<float> above, below;
  std::vector<int32_t> count;
};

LMX_SIMD void add_signs(const float* __restrict row, float* __restrict above, float* __restrict below,
                        int32_t* __restrict count, int64_t n) {
  for (int64_t c = 0; c < n; ++c) {
    const float v = row[c];
    above[c] += v >= 0 ? v : 0.0f;
    below[c] += v >= 0 ? 0.0f : v;
    count[c] += v >= 0 ? 1 : 0;
  }
}

// Each column is summed by one thread in the order of rows, so the means do not depend on the number of threads.
void column_means(const float* values, int64_t rows, int64_t width, float* means) {
  const int64_t grain = std::max<int64_t>(16, kCodecGrain / std::max<int64_t>(rows, 1));
  parallel_for(width, grain, [&](int64_t begin, int64_t end) {
    const auto n = static_cast<size_t>(end - begin);
    std::vector<double> above(n), below(n);
    Signs strip(n);
    for (int64_t first = 0; first < rows; first += kStrip) {
      std::fill(strip.above.begin(), strip.above.end(), 0.0f);
      std::fill(strip.below.begin(), strip.below.end(), 0.0f);
      for (int64_t r = first; r < std::min(rows, first + kStrip); ++r)
        add_signs(values + r * width + begin, strip.above.data(), strip.below.data(), strip.count.data(), end - begin);
      for (size_t c = 0; c < n; ++c) {
        above[c] += static_cast<double>(strip.above[c]);
        below[c] += static_cast<double>(strip.below[c]);
      }
    }
    for (size_t c = 0; c < n; ++c) {
      const int64_t column = begin + static_cast<int64_t>(c);
      means[column] = OneBitCode::mean(above[c], strip.count[c]);
      means[width + column] = OneBitCode::mean(below[c], rows - strip.count[c]);
    }
  });
}

uint8_t signs_of_eight(const float* v) {
  const __m256 positive = _mm256_cmp_ps(_mm256_loadu_ps(v), _mm256_setzero_ps(), _CMP_GE_OQ);
  return static_cast<uint8_t>(_mm256_movemask_ps(positive));
}

void pack_signs(const float* values, int64_t n, uint8_t* out) {
  parallel_for((n + kLanes - 1) / kLanes, kCodecGrain / kLanes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i * kLanes + kLanes <= n) {
        out[i] = signs_of_eight(values + i * kLanes);
        continue;
      }
      float last[kLanes];
      std::fill(last, last + kLanes, -1.0f);
      std::copy(values + i * kLanes, values + n, last);
      out[i] = signs_of_eight(last);
    }
  });
}

// Eight bits from position `bit`; bits after the block's last byte are 0.
uint32_t bits_at(const uint8_t* bits, int64_t bytes, int64_t bit) {
  const int64_t byte = bit / kLanes;
  uint32_t two = bits[byte];
  if (byte + 1 < bytes) two |= static_cast<uint32_t>(bits[byte + 1]) << kLanes;
  return (two >> (bit % kLanes)) & 0xFF;
}

// The decoded values of a row, selected by its bits.
struct Columns {
  const std::byte* means;
  int64_t width;
  __m256 load(int64_t c) const { return _mm256_loadu_ps(reinterpret_cast<const float*>(means + c * 4)); }
  __m256 eight(int64_t c, uint32_t bits) const {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane);
    const __m256 mask = _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane));
    return _mm256_blendv_ps(load(width + c), load(c), mask);
  }
  float one(int64_t c, uint32_t bits) const {
    float v;
    std::memcpy(&v, means + (bits & 1 ? c : width + c) * 4, sizeof v);
    return v;
  }
};

// Decodes rows [first, last) of a block into the rows of `out`, or adds them to these.
template <bool kAdd>
void take_rows(const std::byte* in, int64_t rows, int64_t width, int64_t first, int64_t last,
               const RowsAt<float>& out) {
  const auto* bits = reinterpret_cast<const uint8_t*>(in + 2 * width * 4);
  const int64_t bytes = (rows * width + kLanes - 1) / kLanes;
  const Columns columns{in, width};
  parallel_for(last - first, rows_holding(kCodecGrain, width), [&](int64_t begin, int64_t end) {
    for (int64_t r = first + begin; r < first + end; ++r) {
      float* row = out.row(r - first);
      int64_t c = 0;
      for (; c + kLanes <= width; c += kLanes) {
        const __m256 v = columns.eight(c, bits_at(bits, bytes, r * width + c));
        _mm256_storeu_ps(row + c, kAdd ? _mm256_add_ps(_mm256_loadu_ps(row + c), v) : v);
      }
      for (; c < width; ++c) {
        const float v = columns.one(c, bits_at(bits, bytes, r * width + c));
        row[c] = kAdd ? row[c] + v : v;
      }
    }
  });
}

void encode(Context&, const Encode<OneBitCode, float>& a) {
  if (a.rows * a.width == 0) return;
  std::vector<float> means(static_cast<size_t>(2 * a.width));
  column_means(a.values, a.rows, a.width, means.data());
  std::memcpy(a.encoded, means.data(), means.size() * sizeof(float));
  pack_signs(a.values, a.rows * a.width, reinterpret_cast<uint8_t*>(a.encoded) + means.size() * sizeof(float));
}

void decode(Context&, const Decode<OneBitCode, float>& a) {
  if (a.rows * a.width > 0) take_rows<false>(a.encoded, a.rows, a.width, 0, a.rows, a.to);
}

void add(Context&, const AddDecoded<OneBitCode, float>& a) {
  if (a.rows * a.width > 0) take_rows<true>(a.encoded, a.rows, a.width, 0, a.rows, a.sum);
}

void measure(Context&, const Measure<OneBitCode, float>& a) {
  measure_strips(a.of, [&](int64_t first, int64_t last, float* out) {
    take_rows<false>(a.encoded, a.of.rows, a.of.width, first, last, {out, a.of.width});
  });
}

const KernelAdder adder(Device::Kind::cpu, encode, decode, add, measure);

}  // namespace
}  // namespace lmx::comm
