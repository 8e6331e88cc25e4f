// Products of small matrices inside an op's own loops: on one thread, with all data in the caches, without library
// calls.
//
// The right-hand side is packed in panels of 16 columns. Each panel is a contiguous (k, 16), padded with zero columns.
// A tile of the result has 12 AVX2 vectors, which with two of the panel and one of the left side fill the registers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace lmx::ops {

inline constexpr int64_t kPanelColumns = 16;
inline constexpr int64_t kPanelDepth = 256;  // rows of a panel that stay in the first-level cache during a product

inline int64_t panels_of(int64_t columns) {
  return (columns + kPanelColumns - 1) / kPanelColumns;
}
inline int64_t panel_size(int64_t depth, int64_t columns) {
  return panels_of(columns) * kPanelColumns * depth;
}

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

// Packs the transpose of `from` (columns, depth).
template <class T>
void pack_panels_transposed(const T* from, int64_t stride, int64_t depth, int64_t columns, T* to) {
  for (int64_t c = 0; c < columns; c += kPanelColumns, to += kPanelColumns * depth) {
    const int64_t width = std::min(kPanelColumns, columns - c);
    if (width < kPanelColumns) std::fill_n(to, kPanelColumns * depth, T(0));
    for (int64_t k0 = 0; k0 < depth; k0 += kPanelColumns) {
      const int64_t k1 = std::min(depth, k0 + kPanelColumns);
      for (int64_t j = 0; j < width; ++j) {
        const T* row = from + (c + j) * stride;
        for (int64_t k = k0; k < k1; ++k) to[k * kPanelColumns + j] = row[k];
      }
    }
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

namespace small {

template <class T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(32)));
  // A vector at any address. Loads and stores use this type, one vector at a time: a memcpy of several vectors would
  // use the stack, and the compiler would then keep the sums there.
  typedef T Loose __attribute__((vector_size(32), aligned(sizeof(T)), may_alias));
  static constexpr int kLanes = 32 / sizeof(T);
};

// c (Rows, 16) (+)= a (Rows, depth) panel (depth, 16). c has `width` columns.
template <int Rows, class T>
inline void tile(Left<T> a, const T* panel, int64_t depth, Result<T> c, int64_t width) {
  using Vector = typename VectorOf<T>::Type;
  using Loose = typename VectorOf<T>::Loose;
  constexpr int kLanes = VectorOf<T>::kLanes, kVectors = kPanelColumns / kLanes;
  Vector sum[Rows][kVectors] = {};
  for (int64_t k = 0; k < depth; ++k) {
    Vector b[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) b[v] = *reinterpret_cast<const Loose*>(panel + k * kPanelColumns + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const T x = a.data[r * a.row + k * a.column];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] += x * b[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    T* row = c.data + r * c.stride;
    if (width == kPanelColumns) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        Loose* to = reinterpret_cast<Loose*>(row + v * kLanes);
        *to = c.add ? *to + sum[r][v] : sum[r][v];
      }
    } else {
      T values[kPanelColumns];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) *reinterpret_cast<Loose*>(values + v * kLanes) = sum[r][v];
      for (int64_t j = 0; j < width; ++j) row[j] = (c.add ? row[j] : T(0)) + values[j];
    }
  }
}

template <class T>
inline constexpr int64_t kPanelRows = 12 / (kPanelColumns / VectorOf<T>::kLanes);  // 6 floats, 3 doubles

}  // namespace small

// c (m, n) = a (m, depth) times packed (depth, n). The panels may be deeper than that.
template <class T>
void multiply_small(Left<T> a, Panels<T> packed, Result<T> c, int64_t m, int64_t n, int64_t depth) {
  constexpr int64_t kRows = small::kPanelRows<T>;
  for (int64_t k0 = 0; k0 < depth; k0 += kPanelDepth) {
    const int64_t k = std::min(kPanelDepth, depth - k0);
    const bool add = c.add || k0 > 0;
    for (int64_t c0 = 0; c0 < n; c0 += kPanelColumns) {
      const T* panel = packed.data + c0 * packed.depth + k0 * kPanelColumns;
      const int64_t width = std::min(kPanelColumns, n - c0);
      int64_t r = 0;
      const auto left = [&] { return Left<T>{a.data + r * a.row + k0 * a.column, a.row, a.column}; };
      const auto to = [&] { return Result<T>{c.data + r * c.stride + c0, c.stride, add}; };
      for (; r + kRows <= m; r += kRows) small::tile<kRows, T>(left(), panel, k, to(), width);
      for (; r + 2 <= m; r += 2) small::tile<2, T>(left(), panel, k, to(), width);
      if (r < m) small::tile<1, T>(left(), panel, k, to(), width);
    }
  }
}

}  // namespace lmx::ops
