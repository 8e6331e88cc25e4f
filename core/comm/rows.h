// Rows in memory, and the arguments of the kernels that move, scale and measure them.
#pragma once

#include <span>
#include <type_traits>

#include "comm/partition.h"
#include "lmx/kernels.h"
#include "lmx/math.h"

namespace lmx::comm {

inline constexpr int64_t kPageRows = 256;

// Rows of `width` elements, used from `column` on. They are stored one after the other from `base`, or in pages of
// kPageRows rows. Row i is stored as row at[i], and does not exist if at[i] is negative; without `at` it is row i.
// Without memory there are no rows.
template <class T>
struct RowsAt {
  T* base = nullptr;
  int64_t width = 0, column = 0;
  const int32_t* at = nullptr;
  T* const* pages = nullptr;
  LMX_HD T* row(int64_t i) const {
    if (at && (i = at[i]) < 0) return nullptr;
    if (pages) return pages[i / kPageRows] + i % kPageRows * width + column;
    return base ? base + i * width + column : nullptr;
  }
  template <class U>
    requires std::is_same_v<U, const T>
  operator RowsAt<U>() const {
    return {base, width, column, at, pages};
  }
};

// to_i = from_i + factor plus_i, for the first `columns` elements of each row. A row that `from` does not have counts
// as +0; one that `plus` does not have is not added. `from` may be `to`.
template <class T>
struct CopyRows {
  static constexpr const char* kName = "copy_rows";
  RowsAt<const T> from, plus;
  RowsAt<T> to;
  int64_t rows, columns;
  T factor = 1;
};

template <class T>
struct ScaleRows {
  static constexpr const char* kName = "scale_rows";
  RowsAt<T> x;
  int64_t rows, columns;
  T factor;
};

// *sum += the squares of all rows, each row's sum accumulated in double.
template <class T>
struct SquareRows {
  static constexpr const char* kName = "square_rows";
  RowsAt<const T> x;
  int64_t rows, columns;
  double* sum;
};

// Rows of f32 in a tensor or in the pages of a RowStore.
struct Rows {
  Rows() = default;
  explicit Rows(Tensor t, Uploaded<int32_t> places = {});
  RowsAt<float> from(int64_t first = 0, int64_t column = 0) const;  // from row `first` on
  Tensor tensor;
  Uploaded<float*> pages;
  Uploaded<int32_t> at;
  int64_t width = 0;
};

// A context for kernels on tensors like `t`, where the caller has none.
Context context_of(const Tensor& t);
// (n, ...): row i is row at[i] of `t` (f32 or f64), or +0 if at[i] is negative.
Tensor gather_rows(Context& ctx, const Tensor& t, const Uploaded<int32_t>& at);
// The elements of all parts, one part after the other: a flat copy.
Tensor joined(Context& ctx, DType type, std::span<const Tensor> parts);

}  // namespace lmx::comm
