#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "comm/vectors/vectors.h"
#include "lmx/parallel.h"

namespace lmx::comm {
namespace {

constexpr int64_t kGrain = 1 << 15;  // smallest number of values for a thread

Threshold threshold_of(const float* v, int64_t n, uint32_t k) {
  Threshold t{0, k};
  for (int shift = kFirstShift; shift >= 0; shift -= kDigitBits) {
    std::array<uint32_t, kDigits> counts{};
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t bits = magnitude_bits(v[i]);
      if (has_prefix(bits, t, shift)) ++counts[bits >> shift & (kDigits - 1)];
    }
    choose_digit(counts.data(), t);
  }
  return t;
}

void largest_ids(Context&, const LargestIds<float>& a) {
  parallel_for(a.chunks(), std::max<int64_t>(1, kGrain / a.chunk), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const float* v = a.v + c * a.chunk;
      Threshold t = threshold_of(v, a.size(c), a.taken(c));
      int32_t* to = a.ids + c * a.k;
      for (int64_t i = 0; i < a.size(c); ++i) {
        const uint32_t bits = magnitude_bits(v[i]);
        if (bits < t.prefix || (bits == t.prefix && t.left == 0)) continue;
        if (bits == t.prefix) --t.left;
        *to++ = static_cast<int32_t>(c * a.chunk + i);
      }
    }
  });
}

void take_entries(Context&, const TakeEntries<float>& a) {
  parallel_for(a.k, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      a.values[i] = a.v[a.ids[i]];
      a.v[a.ids[i]] = 0;
    }
  });
}

void add_entries(Context&, const AddEntries<float>& a) {
  parallel_for(a.k, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) a.sum[a.ids[i]] += a.values[i];
  });
}

template <class Args>
void each_group(const Args& a, int64_t n, int64_t size) {
  parallel_for((n + size - 1) / size, kGrain / size, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) a.group(g);
  });
}
void pack_bits(Context&, const PackBits<uint8_t>& a) {
  each_group(a, a.n, kPackedCodes);
}
void unpack_bits(Context&, const UnpackBits<uint8_t>& a) {
  each_group(a, a.n, kPackedCodes);
}
void quantise(Context&, const QuantiseValues<float>& a) {
  each_group(a, a.n, a.kGroup);
}

double dot(const Orthonormalise<float>& a, int64_t c, int64_t d) {
  double sum = 0;
  for (int64_t row = 0; row < a.rows; ++row)
    sum += static_cast<double>(a.m[row * a.columns + c]) * static_cast<double>(a.m[row * a.columns + d]);
  return sum;
}

// Subtracts from column c its part along each column before it. Returns its norm.
double project(const Orthonormalise<float>& a, int64_t c) {
  for (int64_t d = 0; d < c; ++d) {
    const double along = dot(a, c, d);
    for (int64_t row = 0; row < a.rows; ++row) {
      float& own = a.m[row * a.columns + c];
      own = static_cast<float>(static_cast<double>(own) - along * static_cast<double>(a.m[row * a.columns + d]));
    }
  }
  return std::sqrt(dot(a, c, c));
}

void orthonormalise(Context&, const Orthonormalise<float>& a) {
  for (int64_t c = 0; c < a.columns; ++c) {
    const double before = std::sqrt(dot(a, c, c));
    double norm = project(a, c);
    if (a.depends(before, norm)) {
      a.replace(c);
      norm = project(a, c);
    }
    for (int64_t row = 0; row < a.rows; ++row)
      a.m[row * a.columns + c] = static_cast<float>(static_cast<double>(a.m[row * a.columns + c]) / norm);
  }
}

template <class Args>
void each_element(Context&, const Args& a) {
  parallel_for(a.n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) a.set(i);
  });
}

float norm_of(const float* v, int64_t n, bool largest) {
  double norm = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto size = static_cast<double>(std::abs(v[i]));
    if (!largest)
      norm += size * size;
    else
      norm = size > norm || std::isnan(size) ? size : norm;  // NaN stays
  }
  return static_cast<float>(largest ? norm : std::sqrt(norm));
}

void bucket_norms(Context&, const BucketNorms<float>& a) {
  parallel_for((a.n + a.bucket - 1) / a.bucket, std::max<int64_t>(1, kGrain / a.bucket),
               [&](int64_t begin, int64_t end) {
                 for (int64_t b = begin; b < end; ++b)
                   a.norms[b] = norm_of(a.v + b * a.bucket, std::min(a.bucket, a.n - b * a.bucket), a.largest != 0);
               });
}

void add_levels(Context&, const AddLevels<float>& a) {
  parallel_for(a.n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) a.v[i] += a.factor * a.levels.value(a.codes[i], a.norms[i / a.bucket]);
  });
}

std::pair<float, float> offset_and_scale(LevelScale kind, const float* v, int64_t n) {
  if (kind == LevelScale::largest) return {0.0f, norm_of(v, n, true)};
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n && kind == LevelScale::deviation; ++i) sum += static_cast<double>(v[i]);
  const double mean = sum / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) squares += (static_cast<double>(v[i]) - mean) * (static_cast<double>(v[i]) - mean);
  return {static_cast<float>(mean), static_cast<float>(std::sqrt(squares / static_cast<double>(n)))};
}

void encode_block(const EncodeLevels<float>& a, int64_t b) {
  const LevelTable& t = a.table;
  const int64_t begin = b * t.block, n = t.end(b) - begin;
  const float* v = a.v + begin;
  float* numbers = a.numbers + b * t.numbers();
  const auto [offset, scale] = offset_and_scale(t.kind, v, n);
  for (int64_t i = 0; i < n; ++i) a.codes[begin + i] = t.nearest(v[i], offset, scale);
  if (!t.means()) return void(*numbers = scale);
  std::vector<double> sums(static_cast<size_t>(t.count)), counts(sums.size());
  for (int64_t i = 0; i < n; ++i) {
    sums[a.codes[begin + i]] += static_cast<double>(v[i]);
    ++counts[a.codes[begin + i]];
  }
  for (size_t level = 0; level < sums.size(); ++level)
    numbers[level] = counts[level] > 0 ? static_cast<float>(sums[level] / counts[level]) : 0.0f;
}

void encode_levels(Context&, const EncodeLevels<float>& a) {
  parallel_for(a.table.blocks(), std::max<int64_t>(1, kGrain / a.table.block), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) encode_block(a, b);
  });
}

const KernelAdder adder(Device::Kind::cpu, largest_ids, take_entries, add_entries, pack_bits, unpack_bits, quantise,
                        bucket_norms, add_levels, orthonormalise, each_element<Signs<float>>,
                        each_element<SignCodes<float>>, each_element<AddVotes<float>>, each_element<SignValues<float>>,
                        each_element<DivideCounts<float>>, each_element<IdBytes<uint8_t>>,
                        each_element<JoinIds<int32_t>>, each_element<CountEntries<float>>,
                        each_element<ClearWhereZero<float>>, each_element<SpoilEntries<float>>, encode_levels,
                        each_element<DecodeLevels<float>>);

}  // namespace
}  // namespace lmx::comm
