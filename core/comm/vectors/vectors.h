// The arguments of the kernels of lmx/vectors.h.
#pragma once

#include <bit>
#include <cstdint>

#include "lmx/kernels.h"
#include "lmx/math.h"
#include "lmx/vectors.h"
#include "ops/layers/dropout_mask.h"

namespace lmx::comm {

// The bits of |v| as an integer, whose order is that of the absolute values.
LMX_HD inline uint32_t magnitude_bits(float v) {
  return math::bits(v) & 0x7fffffffu;
}

// The search for the k-th largest magnitude of a chunk, eight bits after eight bits from the highest ones.
struct Threshold {
  uint32_t prefix;  // the bits that are known
  uint32_t left;    // how many of the magnitudes that begin with `prefix` are among the k largest
};
inline constexpr int kDigits = 256, kDigitBits = 8, kFirstShift = 24;
// Whether the magnitude has the known bits, which end above bit shift + 8.
LMX_HD inline bool has_prefix(uint32_t magnitude, const Threshold& t, int shift) {
  return shift == kFirstShift || magnitude >> (shift + kDigitBits) == t.prefix;
}
// `counts`: for each digit, how many of the magnitudes with the known bits have it next.
LMX_HD inline void choose_digit(const uint32_t* counts, Threshold& t) {
  int digit = kDigits - 1;
  for (; digit > 0 && counts[digit] < t.left; --digit) t.left -= counts[digit];
  t.prefix = t.prefix << kDigitBits | static_cast<uint32_t>(digit);
}

// ids[...]: the k largest of each chunk, of the last one at most all. REQUIRES: k <= chunk.
template <class T>
struct LargestIds {
  static constexpr const char* kName = "largest_ids";
  const T* v;
  int64_t n, k, chunk;
  int32_t* ids;
  LMX_HD int64_t chunks() const { return (n + chunk - 1) / chunk; }
  LMX_HD int64_t size(int64_t c) const { return c * chunk + chunk < n ? chunk : n - c * chunk; }
  LMX_HD uint32_t taken(int64_t c) const { return static_cast<uint32_t>(k < size(c) ? k : size(c)); }
};

// values[i] = v[ids[i]], which becomes 0.
template <class T>
struct TakeEntries {
  static constexpr const char* kName = "take_entries";
  T* v;
  const int32_t* ids;
  T* values;
  int64_t k;
};
// values[i] becomes NaN if *squares, a sum of squares, is not finite.
template <class T>
struct SpoilEntries {
  static constexpr const char* kName = "spoil_entries";
  const double* squares;
  int64_t n;
  T* values;
  LMX_HD void set(int64_t i) const { values[i] += static_cast<T>(0 * *squares); }
};
// sum[ids[i]] += values[i]; no id occurs twice.
template <class T>
struct AddEntries {
  static constexpr const char* kName = "add_entries";
  T* sum;
  const int32_t* ids;
  const T* values;
  int64_t k;
};

// The columns of m (rows, columns) become orthonormal.
template <class T>
struct Orthonormalise {
  static constexpr const char* kName = "orthonormalise";
  T* m;
  int64_t rows, columns;
  // A column depends on the others if what is left of its norm is rounding error. NaN is not dependent.
  static LMX_HD bool depends(double before, double after) { return after <= 1e-6 * before; }
  // The squares of the first `count` elements of a row.
  LMX_HD double squares(int64_t row, int64_t count) const {
    double sum = 0;
    for (int64_t c = 0; c < count; ++c)
      sum += static_cast<double>(m[row * columns + c]) * static_cast<double>(m[row * columns + c]);
    return sum;
  }
  // Column c becomes the unit vector of which the columns before it contain least.
  LMX_HD void replace(int64_t c) const {
    int64_t best = 0;
    for (int64_t row = 0; row < rows; ++row) {
      if (squares(row, c) < squares(best, c)) best = row;
      m[row * columns + c] = 0;
    }
    m[best * columns + c] = 1;
  }
};

template <class T>
struct Signs {
  static constexpr const char* kName = "signs";
  const T* x;
  int64_t n;
  T* y;
  LMX_HD void set(int64_t i) const { y[i] = (x[i] > 0 ? T(1) : x[i] < 0 ? T(-1) : x[i]) + 0 * x[i]; }
};
// codes[i]: 1 if v[i] is not negative, else 0.
template <class T>
struct SignCodes {
  static constexpr const char* kName = "sign_codes";
  const T* v;
  int64_t n;
  uint8_t* codes;
  LMX_HD void set(int64_t i) const { codes[i] = v[i] >= 0; }
};
// votes[i] += 1 or -1 by its code, if *squares is not 0.
template <class T>
struct AddVotes {
  static constexpr const char* kName = "add_votes";
  const uint8_t* codes;
  const double* squares;
  int64_t n;
  T* votes;
  LMX_HD void set(int64_t i) const {
    if (*squares != 0) votes[i] += codes[i] ? T(1) : T(-1);
  }
};
// y[i] = 1 or -1 by its code; NaN if one of the ranks' sums of squares is not finite.
template <class T>
struct SignValues {
  static constexpr const char* kName = "sign_values";
  const uint8_t* codes;
  const double* squares;  // (ranks)
  int64_t n, ranks;
  T* y;
  LMX_HD void set(int64_t i) const {
    double nothing = 0;
    for (int64_t r = 0; r < ranks; ++r) nothing += 0 * squares[r];
    y[i] = (codes[i] ? T(1) : T(-1)) + static_cast<T>(nothing);
  }
};

// Eight codes are `bits` bytes.
inline constexpr int64_t kPackedCodes = 8;
template <class T>
struct PackBits {
  static constexpr const char* kName = "pack_bits";
  const T* codes;
  int64_t n, bytes, bits;
  T* packed;
  LMX_HD void group(int64_t g) const {
    uint64_t word = 0;
    for (int64_t j = 0; j < kPackedCodes; ++j) {
      const int64_t i = g * kPackedCodes + j;
      if (i < n) word |= (uint64_t{codes[i]} & ((1u << bits) - 1)) << (j * bits);
    }
    for (int64_t b = 0; b < bits && g * bits + b < bytes; ++b) packed[g * bits + b] = static_cast<T>(word >> (8 * b));
  }
};
template <class T>
struct UnpackBits {
  static constexpr const char* kName = "unpack_bits";
  const T* packed;
  int64_t n, bytes, bits;
  T* codes;
  LMX_HD void group(int64_t g) const {
    uint64_t word = 0;
    for (int64_t b = 0; b < bits && g * bits + b < bytes; ++b) word |= uint64_t{packed[g * bits + b]} << (8 * b);
    for (int64_t j = 0; j < kPackedCodes; ++j) {
      const int64_t i = g * kPackedCodes + j;
      if (i < n) codes[i] = static_cast<T>(word >> (j * bits) & ((1u << bits) - 1));
    }
  }
};

// The norms of the buckets of v (n).
template <class T>
struct BucketNorms {
  static constexpr const char* kName = "bucket_norms";
  const T* v;
  int64_t n, bucket, largest;  // largest: 1 or 0
  T* norms;
};

// The code of a level: the level, and above it the sign.
struct Levels {
  int64_t bits;
  LMX_HD uint32_t count() const { return (1u << (bits - 1)) - 1; }
  // `word`: 32 random bits. An element that is not below its norm, such as NaN, has the highest level.
  LMX_HD uint8_t code(float v, float norm, uint32_t word) const {
    const uint32_t sign = math::bits(v) >> 31 << (bits - 1);
    if (norm == 0) return static_cast<uint8_t>(sign);
    const float x = math::from_bits(magnitude_bits(v)) / norm * static_cast<float>(count());
    uint32_t level = count();
    if (x < static_cast<float>(count())) {
      level = static_cast<uint32_t>(x);
      if (static_cast<float>(word) * 0x1p-32f < x - static_cast<float>(level)) ++level;
    }
    return static_cast<uint8_t>(sign | level);
  }
  LMX_HD float value(uint8_t code, float norm) const {
    const float level = static_cast<float>(code & count()) / static_cast<float>(count());
    return code >> (bits - 1) ? -norm * level : norm * level;
  }
};
template <class T>
struct QuantiseValues {
  static constexpr const char* kName = "quantise_values";
  const T *v, *norms;
  int64_t n, bucket;
  Levels levels;
  uint64_t key;
  uint8_t* codes;
  // Elements 4 g to 4 g + 3, which share a block of random words.
  LMX_HD void group(int64_t g) const {
    const ops::MaskWords words = ops::mask_words(key, static_cast<uint64_t>(g) >> 32, static_cast<uint32_t>(g));
    for (int64_t j = 0; j < kGroup; ++j) {
      const int64_t i = g * kGroup + j;
      if (i < n) codes[i] = levels.code(v[i], norms[i / bucket], words.word[j]);
    }
  }
  static constexpr int64_t kGroup = 4;
};
// v += factor * the decoded values.
template <class T>
struct AddLevels {
  static constexpr const char* kName = "add_levels";
  const uint8_t* codes;
  const T* norms;
  int64_t n, bucket;
  Levels levels;
  T* v;
  T factor;
};

// Byte `shift` / 8 of the ids within their chunk.
template <class T>
struct IdBytes {
  static constexpr const char* kName = "id_bytes";
  const int32_t* ids;
  int64_t chunk, shift, n;
  T* codes;
  LMX_HD void set(int64_t i) const { codes[i] = static_cast<T>(ids[i] % chunk >> shift); }
};
// The inverse, from the lowest byte on; chunk c has the ids [c k, c k + k) of the list.
template <class T>
struct JoinIds {
  static constexpr const char* kName = "join_ids";
  const uint8_t* codes;
  int64_t k, chunk, shift, n;
  T* ids;
  LMX_HD void set(int64_t i) const {
    const int64_t before = shift == 0 ? i / k * chunk : ids[i];
    ids[i] = static_cast<T>(before + (int64_t{codes[i]} << shift));
  }
};
// counts[ids[i]] += 1; no id occurs twice.
template <class T>
struct CountEntries {
  static constexpr const char* kName = "count_entries";
  T* counts;
  const int32_t* ids;
  int64_t n;
  LMX_HD void set(int64_t i) const { counts[ids[i]] += T(1); }
};
// y[i] becomes 0 where x[i] is 0.
template <class T>
struct ClearWhereZero {
  static constexpr const char* kName = "clear_where_zero";
  const T* x;
  int64_t n;
  T* y;
  LMX_HD void set(int64_t i) const {
    if (x[i] == 0) y[i] = 0;
  }
};
// y[i] /= counts[i] where the count is above 1.
template <class T>
struct DivideCounts {
  static constexpr const char* kName = "divide_counts";
  const T* counts;
  int64_t n;
  T* y;
  LMX_HD void set(int64_t i) const {
    if (counts[i] > 1) y[i] /= counts[i];
  }
};

// The levels of a LevelCoder (count), and how the blocks of n elements are coded with them.
struct LevelTable {
  const float* levels;
  int64_t count, n, block;
  LevelScale kind;
  LMX_HD int64_t blocks() const { return (n + block - 1) / block; }
  LMX_HD bool means() const { return kind == LevelScale::deviation; }  // stored for each level, instead of the scale
  LMX_HD int64_t numbers() const { return means() ? count : 1; }       // that are stored for a block
  LMX_HD int64_t end(int64_t b) const { return (b + 1) * block < n ? (b + 1) * block : n; }
  // The number of the nearest level. NaN has the highest one.
  LMX_HD uint8_t nearest(float v, float offset, float scale) const {
    const float x = scale == 0 ? 0 : (v - offset) / scale;
    int64_t low = 0, high = count - 1;  // the level is one of [low, high]
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (x <= (levels[middle] + levels[middle + 1]) / 2)
        high = middle;
      else
        low = middle + 1;
    }
    return static_cast<uint8_t>(low);
  }
};
// numbers (blocks, numbers()): of each block. codes (n)
template <class T>
struct EncodeLevels {
  static constexpr const char* kName = "encode_levels";
  LevelTable table;
  const T* v;
  T* numbers;
  uint8_t* codes;
};
template <class T>
struct DecodeLevels {
  static constexpr const char* kName = "decode_levels";
  LevelTable table;
  const uint8_t* codes;
  const T* numbers;
  int64_t n;
  T* v;
  LMX_HD void set(int64_t i) const {
    const int64_t b = i / table.block;
    v[i] = table.means() ? numbers[b * table.count + codes[i]] : numbers[b] * table.levels[codes[i]];
  }
};

}  // namespace lmx::comm
