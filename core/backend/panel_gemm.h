// f32 products of few rows with a weight packed in panels, for CPUs without AVX-512. There oneDNN has no packed
// kernels, and its GEMM reaches 2/3 of its peak at 32 rows.
#pragma once

#include <cstdint>

namespace lmx {

inline constexpr int64_t kPanel = 24;  // columns of a panel: three AVX2 vectors

// Number of floats of op(w) (k, n) in panels: n is rounded up to whole panels.
inline int64_t panel_floats(int64_t k, int64_t n) {
  return (n + kPanel - 1) / kPanel * kPanel * k;
}

// panels: op(w) (k, n) as n / 24 blocks of (k, 24), the last one padded with zeros. w is (n, k) if trans, else (k, n).
void pack_panels(const float* w, bool trans, int64_t k, int64_t n, float* panels);

// y (m, n) = x (m, k) * op(w) + beta * y; beta is 0 or 1. For every element, k ascends in the sum.
void multiply_panels(const float* x, const float* panels, float* y, int64_t m, int64_t n, int64_t k, float beta);

}  // namespace lmx
