// Products of small matrices inside an op's own loops: on one thread, with all data in the caches, without library
// calls.
//
// The right-hand side is packed in panels of 16 columns. Each panel is a contiguous (k, 16), padded with zero columns.
// Where the processor has AVX-512, a tile of the result takes two panels. The elements of the operands are numbers, or
// pairs of bf16 for AVX512-BF16.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ops/common.h"

namespace lmx::ops {

inline constexpr int64_t kPanelColumns = 16;
inline constexpr int64_t kPanelDepth = 256;  // rows of a panel that stay in the first-level cache during a product

// The columns of as many panels as `columns` columns need.
inline int64_t whole_panels(int64_t columns) {
  return (columns + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
}
inline int64_t panel_size(int64_t depth, int64_t columns) {
  return whole_panels(columns) * depth;
}

// Two numbers of bf16 that follow each other in the inner dimension of a product; the first is the low half. A product
// of pairs is a sum of f32.
using Bf16Pair = uint32_t;
template <class E>
inline constexpr int64_t kNumbersOf = std::is_same_v<E, Bf16Pair> ? 2 : 1;  // of an element
template <class E>
using SumOf = std::conditional_t<std::is_same_v<E, Bf16Pair>, float, E>;
// The elements that `n` numbers of the inner dimension need.
template <class E>
int64_t elements_of(int64_t n) {
  return (n + kNumbersOf<E> - 1) / kNumbersOf<E>;
}

// These run on processors with AVX512-BF16 only, whose conversions take the place of a dozen instructions.
#define LMX_BF16_PAIRS __attribute__((target("arch=x86-64-v4,avx512bf16")))

// The first `n` of 16 numbers, and zeros in the place of the others.
LMX_BF16_PAIRS inline __m512 first_numbers(const float* x, int64_t n) {
  return n >= 16 ? _mm512_loadu_ps(x)
                 : _mm512_maskz_loadu_ps(static_cast<__mmask16>((1 << std::max<int64_t>(n, 0)) - 1), x);
}
LMX_BF16_PAIRS inline void store_pairs(Bf16Pair* to, __m512bh pairs, int64_t n) {
  const auto words = (__m512i)pairs;
  n >= 16 ? _mm512_storeu_si512(to, words) : _mm512_mask_storeu_epi32(to, static_cast<__mmask16>((1 << n) - 1), words);
}

// `to`: the pairs (x[0], x[1]), (x[2], x[3]), ... of n numbers. The last one has a zero if n is odd.
LMX_BF16_PAIRS inline void pairs_of_row(const float* x, Bf16Pair* to, int64_t n) {
  for (int64_t i = 0; i < n; i += 32)
    store_pairs(to + i / 2, _mm512_cvtne2ps_pbh(first_numbers(x + i + 16, n - i - 16), first_numbers(x + i, n - i)),
                elements_of<Bf16Pair>(n - i));
}
// `to`: the n pairs (x[0], y[0]), (x[1], y[1]), ... A null y is zeros.
LMX_BF16_PAIRS inline void pairs_of_rows(const float* x, const float* y, Bf16Pair* to, int64_t n) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i order = _mm512_load_si512(kOrder);
  for (int64_t i = 0; i < n; i += 16) {
    const __m512bh both =
        _mm512_cvtne2ps_pbh(y ? first_numbers(y + i, n - i) : _mm512_setzero_ps(), first_numbers(x + i, n - i));
    store_pairs(to + i, (__m512bh)_mm512_permutexvar_epi16(order, (__m512i)both), n - i);
  }
}

#undef LMX_BF16_PAIRS

// Packs `from` (depth, columns), whose rows are `stride` elements apart.
template <class T>
void pack_panels(const T* from, int64_t stride, int64_t depth, int64_t columns, T* to) {
  for (int64_t c = 0; c < columns; c += kPanelColumns, to += kPanelColumns * depth) {
    const int64_t width = std::min(kPanelColumns, columns - c);
    for (int64_t k = 0; k < depth; ++k) {
      T* row = to + k * kPanelColumns;
      if (width == kPanelColumns) {
        std::memcpy(row, from + k * stride + c, sizeof(T) * kPanelColumns);
      } else {
        std::copy_n(from + k * stride + c, width, row);
        std::fill(row + width, row + kPanelColumns, T(0));
      }
    }
  }
}

// The transpose of 4 x 4 elements, whose rows are `from_stride` and `to_stride` elements apart.
template <class T>
[[gnu::always_inline]] inline void transpose_tile(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
  typedef T Four __attribute__((vector_size(4 * sizeof(T))));
  Four a, b, c, d;
  std::memcpy(&a, from, sizeof(Four));
  std::memcpy(&b, from + from_stride, sizeof(Four));
  std::memcpy(&c, from + 2 * from_stride, sizeof(Four));
  std::memcpy(&d, from + 3 * from_stride, sizeof(Four));
  const Four low_ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), low_cd = __builtin_shufflevector(c, d, 0, 4, 1, 5),
             high_ab = __builtin_shufflevector(a, b, 2, 6, 3, 7), high_cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const Four columns[] = {
      __builtin_shufflevector(low_ab, low_cd, 0, 1, 4, 5), __builtin_shufflevector(low_ab, low_cd, 2, 3, 6, 7),
      __builtin_shufflevector(high_ab, high_cd, 0, 1, 4, 5), __builtin_shufflevector(high_ab, high_cd, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(to + i * to_stride, &columns[i], sizeof(Four));
}

// Packs the transpose of `from` (columns, depth).
template <class T>
void pack_panels_transposed(const T* from, int64_t stride, int64_t depth, int64_t columns, T* to) {
  for (int64_t c = 0; c < columns; c += kPanelColumns, to += kPanelColumns * depth) {
    const int64_t width = std::min(kPanelColumns, columns - c), tiled = width / 4 * 4, deep = depth / 4 * 4;
    const T* rows = from + c * stride;
    if (width < kPanelColumns) std::fill_n(to, kPanelColumns * depth, T(0));
    for (int64_t j = 0; j < tiled; j += 4)
      for (int64_t k = 0; k < deep; k += 4)
        transpose_tile(rows + j * stride + k, stride, to + k * kPanelColumns + j, kPanelColumns);
    for (int64_t j = 0; j < width; ++j)
      for (int64_t k = j < tiled ? deep : 0; k < depth; ++k) to[k * kPanelColumns + j] = rows[j * stride + k];
  }
}

// Element (r, k) of a left-hand side is data[r * row + k * column], so it can be a matrix or its transpose.
template <class T>
struct Left {
  const T* data;
  int64_t row, column;
};

template <class T>
struct Panels {
  const T* data;
  int64_t depth;  // rows of a panel
};

template <class T>
struct Result {
  T* data;
  int64_t stride;    // of its rows
  bool add = false;  // the product is added to it
};

// The elements of a product whose left-hand side or result is triangular. A tile outside it is not computed.
//   result:    row r of the result is needed in columns [0, at + r] only; the other columns keep undefined values
//   lower:     number (r, k) of the left-hand side is zero for k > at + r
//   upper:     number (r, k) of the left-hand side is zero for k < r - at
struct Triangle {
  enum Kind : uint8_t { none, result, lower, upper } kind = none;
  int64_t at = 0;
};

// c (m, n) = a (m, depth) times packed (depth, n). The panels may be deeper than that. `depth` counts elements.
template <class E>
struct SmallProduct {
  Left<E> a;
  Panels<E> packed;
  Result<SumOf<E>> c;
  int64_t m, n, depth;
  Triangle triangle = {};
};

namespace small {

template <class T, int kBytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBytes)));
  // A vector at any address. Loads and stores use this type, one vector at a time: a memcpy of several vectors would
  // use the stack, and the compiler would then keep the sums there.
  typedef T Loose __attribute__((vector_size(kBytes), aligned(sizeof(T)), may_alias));
};

// sum += x b. The instruction for pairs is written as such: its intrinsic cannot be inlined into a template that other
// instruction sets share.
template <class E, class Sum, class Vector>
[[gnu::always_inline]] inline void add_product(Sum& sum, E x, const Vector& b) {
  if constexpr (std::is_same_v<E, Bf16Pair>) {
    const Vector all = Vector{} + x;
    Sum next = sum;
    asm("vdpbf16ps %2, %1, %0" : "+v"(next) : "v"(all), "v"(b));
    sum = next;
  } else {
    sum += x * b;
  }
}

// c (kRows, 16 kPanels) (+)= a (kRows, depth) times kPanels panels (depth, 16), which are `next` elements apart. c has
// `width` columns.
template <int kBytes, int kRows, int kPanels, class E>
[[gnu::always_inline]] inline void tile(Left<E> a, const E* panel, int64_t next, int64_t depth, Result<SumOf<E>> c,
                                        int64_t width) {
  using T = SumOf<E>;
  using Vector = typename VectorOf<E, kBytes>::Type;
  using Operands = typename VectorOf<E, kBytes>::Loose;
  using Loose = typename VectorOf<T, kBytes>::Loose;
  static_assert(sizeof(E) == sizeof(T));
  constexpr int kLanes = kBytes / sizeof(T), kInPanel = kPanelColumns / kLanes, kVectors = kPanels * kInPanel;
  typename VectorOf<T, kBytes>::Type sum[kRows][kVectors] = {};
  for (int64_t k = 0; k < depth; ++k) {
    Vector b[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      b[v] =
          *reinterpret_cast<const Operands*>(panel + v / kInPanel * next + k * kPanelColumns + v % kInPanel * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const E x = a.data[r * a.row + k * a.column];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) add_product<E>(sum[r][v], x, b[v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    T* row = c.data + r * c.stride;
    if (width == kPanels * kPanelColumns) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        Loose* to = reinterpret_cast<Loose*>(row + v * kLanes);
        *to = c.add ? *to + sum[r][v] : sum[r][v];
      }
    } else {
      T values[kPanels * kPanelColumns];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) *reinterpret_cast<Loose*>(values + v * kLanes) = sum[r][v];
      for (int64_t j = 0; j < width; ++j) row[j] = (c.add ? row[j] : T(0)) + values[j];
    }
  }
}

// Rows [r, r + kRows) of columns [c0, c0 + 16 kPanels), from rows [k0, k1) of the panels.
template <int kBytes, int kRows, int kPanels, class E>
[[gnu::always_inline]] inline void rows_of_product(const SmallProduct<E>& p, int64_t r, int64_t c0, int64_t k0,
                                                   int64_t k1) {
  const Triangle t = p.triangle;
  if (t.kind == Triangle::result && c0 > t.at + r + kRows - 1) return;
  const int64_t first = t.kind == Triangle::upper ? std::clamp((r - t.at) / kNumbersOf<E>, k0, k1) : k0;
  const int64_t last = t.kind == Triangle::lower ? std::clamp(elements_of<E>(t.at + r + kRows), k0, k1) : k1;
  const bool add = p.c.add || k0 > 0;
  if (add && first == last) return;
  tile<kBytes, kRows, kPanels, E>(
      {p.a.data + r * p.a.row + first * p.a.column, p.a.row, p.a.column},
      p.packed.data + c0 * p.packed.depth + first * kPanelColumns, kPanelColumns * p.packed.depth, last - first,
      {p.c.data + r * p.c.stride + c0, p.c.stride, add}, std::min(kPanels * kPanelColumns, p.n - c0));
}

// All rows of kPanels panels.
template <int kBytes, int kRows, int kPanels, class E>
[[gnu::always_inline]] inline void columns_of_product(const SmallProduct<E>& p, int64_t c0, int64_t k0, int64_t k1) {
  int64_t r = 0;
  for (; r + kRows <= p.m; r += kRows) rows_of_product<kBytes, kRows, kPanels>(p, r, c0, k0, k1);
  for (; r + 2 <= p.m; r += 2) rows_of_product<kBytes, 2, kPanels>(p, r, c0, k0, k1);
  if (r < p.m) rows_of_product<kBytes, 1, kPanels>(p, r, c0, k0, k1);
}

// With tiles of kRows rows and kPanels panels, by vectors of kBytes bytes. An element is the sum of the same products
// in the same order for all of these.
template <int kBytes, int kRows, int kPanels, class E>
[[gnu::always_inline]] inline void multiply(const SmallProduct<E>& p) {
  for (int64_t k0 = 0; k0 < p.depth; k0 += kPanelDepth) {
    const int64_t k1 = std::min(p.depth, k0 + kPanelDepth);
    int64_t c0 = 0;
    for (; p.n - c0 > (kPanels - 1) * kPanelColumns; c0 += kPanels * kPanelColumns)
      columns_of_product<kBytes, kRows, kPanels>(p, c0, k0, k1);
    if (kPanels > 1 && c0 < p.n) columns_of_product<kBytes, kRows, 1>(p, c0, k0, k1);
  }
}

// The tiles fill the registers: 16 of AVX2, 32 of AVX-512. A double takes twice as much of a register as a float.
template <class E>
inline void multiply_avx2(const SmallProduct<E>& p) {
  multiply<32, 24 / sizeof(E), 1>(p);
}
template <class E>
__attribute__((target("arch=x86-64-v4"))) inline void multiply_avx512(const SmallProduct<E>& p) {
  multiply<64, 12, 8 / sizeof(E)>(p);
}

}  // namespace small

// REQUIRES for pairs: the processor has AVX512-BF16.
template <class E>
void multiply_small(const SmallProduct<E>& product) {
  if constexpr (std::is_same_v<E, Bf16Pair>) {
    small::multiply_avx512(product);
  } else {
    has_avx512() ? small::multiply_avx512(product) : small::multiply_avx2(product);
  }
}

}  // namespace lmx::ops
