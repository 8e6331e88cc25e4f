// The masks of dropout as a function of row ids, for ops that apply dropout inside their own loops.
#pragma once

#include <cstdint>

#include "lmx/random.h"

namespace lmx::ops {

// Column j of row `row` is dropped if its word is below `threshold`; otherwise it is scaled by 1 / (1 - p). A pure
// function of (key, row, j).
struct DropMask {
  uint64_t key = 0;
  uint32_t threshold = 0;
  double keep_scale = 1;
  DropMask() = default;
  DropMask(double p, RandomKey k)
      : key(k.value()), threshold(static_cast<uint32_t>(p * 0x1p32)), keep_scale(1.0 / (1.0 - p)) {}
};

inline constexpr int kMaskColumns = 64;  // columns are sampled in groups of this size

// y_j = x_j * mask(row, first + j) for n columns; y may be x. REQUIRES: `first` is a multiple of kMaskColumns.
void drop_row(const float* x, float* y, const DropMask& mask, uint64_t row, int64_t first, int64_t n);
void drop_row(const double* x, double* y, const DropMask& mask, uint64_t row, int64_t first, int64_t n);

}  // namespace lmx::ops
