// f32 products of few rows with a weight packed in panels, for CPUs without AVX-512. There oneDNN has no packed
// kernels, and its GEMM reaches 2/3 of its peak at 32 rows.
#pragma once

#include <cstdint>

#include "lmx/dtype.h"

namespace lmx {

inline constexpr int64_t kPanel = 24;  // columns of a panel: three AVX2 vectors

// Number of elements of op(w) (k, n) in panels: n is rounded up to whole panels.
inline int64_t panel_elements(int64_t k, int64_t n) {
  return (n + kPanel - 1) / kPanel * kPanel * k;
}

// Element: float, or bfloat16 for weights that bf16 holds exactly. A product of one row takes as long as its panels
// take to be read, so these need half the time.

// panels: op(w) (k, n) as n / 24 blocks of (k, 24), the last one padded with zeros. w is (n, k) if trans, else (k, n).
template <class Element>
void pack_panels(const float* w, bool trans, int64_t k, int64_t n, Element* panels);

// y (m, n) = x (m, k) * op(w) + beta * y; beta is 0 or 1. For every element, k ascends in the sum, whatever Element is.
template <class Element>
void multiply_panels(const float* x, const Element* panels, float* y, int64_t m, int64_t n, int64_t k, float beta);

}  // namespace lmx
