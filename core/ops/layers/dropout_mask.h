// The masks of dropout as a function of row ids, for ops that apply dropout inside their own loops.
#pragma once

#include <cstdint>

#include "lmx/math.h"
#include "lmx/random.h"

namespace lmx::ops {

// Column j of row `row` is dropped if its word is below `threshold`; otherwise it is scaled by 1 / (1 - p). A pure
// function of (key, row, j): column 64 g + 16 w + l uses word w of block 16 g + l of the row.
struct DropMask {
  uint64_t key = 0;
  uint32_t threshold = 0;
  double keep_scale = 1;
  DropMask() = default;
  DropMask(double p, RandomKey k)
      : key(k.value()), threshold(static_cast<uint32_t>(p * 0x1p32)), keep_scale(1.0 / (1.0 - p)) {}
};

struct MaskWords {
  uint32_t word[4];
};

inline constexpr uint32_t kMaskDomain = 4;  // separates the mask from the other uses of lmx/random.h
inline constexpr uint64_t kPhiloxMultiply0 = 0xD2511F53u, kPhiloxMultiply1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u, kPhiloxWeyl1 = 0xBB67AE85u;

// Block `block` of a row's words. The function is the same as lmx::philox (a test compares them), and can be inlined.
[[gnu::always_inline]] LMX_HD inline MaskWords mask_words(uint64_t key, uint64_t row, uint32_t block) {
  uint32_t c0 = block, c1 = static_cast<uint32_t>(row), c2 = kMaskDomain, c3 = static_cast<uint32_t>(row >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = kPhiloxMultiply0 * c0, p1 = kPhiloxMultiply1 * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

// The factor of a column with this word.
template <class T>
LMX_HD inline T mask_factor(uint32_t word, uint32_t threshold, T keep_scale) {
  return word < threshold ? T(0) : keep_scale;
}

inline constexpr int kMaskColumns = 64;  // columns are sampled in groups of this size

// y_j = x_j * mask(row, first + j) for n columns; y may be x. REQUIRES: `first` is a multiple of kMaskColumns.
void drop_row(const float* x, float* y, const DropMask& mask, uint64_t row, int64_t first, int64_t n);
void drop_row(const double* x, double* y, const DropMask& mask, uint64_t row, int64_t first, int64_t n);

}  // namespace lmx::ops
