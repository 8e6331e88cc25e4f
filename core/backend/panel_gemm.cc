// The loops keep a (256, 24) piece of a panel in the first-level cache while they process all rows of x. A tile of 4
// rows x 24 columns has 12 accumulators, which with 3 vectors of w and one of x fill AVX2's 16 registers.
#include "backend/panel_gemm.h"

#include <immintrin.h>

#include <algorithm>

#include "lmx/parallel.h"

namespace lmx {
namespace {

constexpr int64_t kDepth = 256;  // rows of k in a piece: 24 KiB of w
constexpr int64_t kRows = 4;
constexpr int kVectors = kPanel / 8;

__m256 load(const float* w) {
  return _mm256_loadu_ps(w);
}
__m256 load(const bfloat16* w) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// One tile: y (Rows, 24) += x (Rows, depth) * piece (depth, 24). `ahead`: this tile's part of the next piece, which is
// prefetched.
template <int Rows, class Element>
void tile(const float* x, int64_t ldx, const Element* piece, float* y, int64_t ldy, int64_t depth,
          const Element* ahead) {
  __m256 sum[Rows][kVectors];
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm256_loadu_ps(y + r * ldy + 8 * v);
  }
  for (int64_t k = 0; k < depth; ++k) {
    if ((k & 3) == 0) _mm_prefetch(reinterpret_cast<const char*>(ahead + 4 * k), _MM_HINT_T1);
    const Element* w = piece + k * kPanel;
    const __m256 w0 = load(w), w1 = load(w + 8), w2 = load(w + 16);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const __m256 a = _mm256_broadcast_ss(x + r * ldx + k);
      sum[r][0] = _mm256_fmadd_ps(a, w0, sum[r][0]);
      sum[r][1] = _mm256_fmadd_ps(a, w1, sum[r][1]);
      sum[r][2] = _mm256_fmadd_ps(a, w2, sum[r][2]);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < kVectors; ++v) _mm256_storeu_ps(y + r * ldy + 8 * v, sum[r][v]);
  }
}

template <class Element>
void tiles(const float* x, const Element* piece, float* y, int64_t ldy, int64_t m, int64_t k, int64_t depth,
           const Element* next) {
  int64_t r = 0;
  // Every tile prefetches its part of the next piece.
  const int64_t share = kDepth * kPanel / std::max<int64_t>(1, m / kRows);
  for (; r + kRows <= m; r += kRows) tile<4>(x + r * k, k, piece, y + r * ldy, ldy, depth, next + r / kRows * share);
  switch (m - r) {
    case 3:
      return tile<3>(x + r * k, k, piece, y + r * ldy, ldy, depth, next);
    case 2:
      return tile<2>(x + r * k, k, piece, y + r * ldy, ldy, depth, next);
    case 1:
      return tile<1>(x + r * k, k, piece, y + r * ldy, ldy, depth, next);
    default:
      return;
  }
}

// Multiplies all rows by one panel. The tiles add to `block` (m, 24), so that the last, narrower panel needs no
// separate kernel.
template <class Element>
void multiply_panel(const float* x, const Element* panel, float* y, int64_t ldy, int64_t width, int64_t m, int64_t k,
                    float beta, float* block) {
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t j = 0; j < kPanel; ++j) block[r * kPanel + j] = beta != 0 && j < width ? y[r * ldy + j] : 0.0f;
  }
  for (int64_t k0 = 0; k0 < k; k0 += kDepth) {
    const int64_t depth = std::min(kDepth, k - k0);
    const Element* piece = panel + k0 * kPanel;
    tiles(x + k0, piece, block, kPanel, m, k, depth, piece + kDepth * kPanel);
  }
  for (int64_t r = 0; r < m; ++r) std::copy_n(block + r * kPanel, width, y + r * ldy);
}

}  // namespace

template <class Element>
void pack_panels(const float* w, bool trans, int64_t k, int64_t n, Element* panels) {
  const auto element = [](float value) { return Element(value); };
  const int64_t count = (n + kPanel - 1) / kPanel;
  parallel_for(count, std::max<int64_t>(1, (1 << 15) / (kPanel * std::max<int64_t>(k, 1))),
               [&](int64_t begin, int64_t end) {
                 for (int64_t p = begin; p < end; ++p) {
                   Element* panel = panels + p * kPanel * k;
                   const int64_t n0 = p * kPanel, width = std::min(kPanel, n - n0);
                   if (width < kPanel) std::fill_n(panel, kPanel * k, Element(0.0f));
                   if (!trans) {
                     for (int64_t i = 0; i < k; ++i)
                       std::transform(w + i * n + n0, w + i * n + n0 + width, panel + i * kPanel, element);
                     continue;
                   }
                   constexpr int64_t kBlock = 64;  // columns of w that stay in cache while the panel is filled
                   for (int64_t i0 = 0; i0 < k; i0 += kBlock) {
                     const int64_t i1 = std::min(k, i0 + kBlock);
                     for (int64_t j = 0; j < width; ++j) {
                       for (int64_t i = i0; i < i1; ++i) panel[i * kPanel + j] = element(w[(n0 + j) * k + i]);
                     }
                   }
                 }
               });
}

template <class Element>
void multiply_panels(const float* x, const Element* panels, float* y, int64_t m, int64_t n, int64_t k, float beta) {
  const int64_t count = (n + kPanel - 1) / kPanel;
  constexpr int64_t kBlockRows = 64;  // rows that use one piece before the next one
  parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    alignas(64) float block[kBlockRows * kPanel];
    for (int64_t p = begin; p < end; ++p) {
      const int64_t n0 = p * kPanel;
      for (int64_t r = 0; r < m; r += kBlockRows) {
        multiply_panel(x + r * k, panels + p * kPanel * k, y + r * n + n0, n, std::min(kPanel, n - n0),
                       std::min(kBlockRows, m - r), k, beta, block);
      }
    }
  });
}

template void pack_panels(const float*, bool, int64_t, int64_t, float*);
template void pack_panels(const float*, bool, int64_t, int64_t, bfloat16*);
template void multiply_panels(const float*, const float*, float*, int64_t, int64_t, int64_t, float);
template void multiply_panels(const float*, const bfloat16*, float*, int64_t, int64_t, int64_t, float);

}  // namespace lmx
