// Arguments of the kernels of elements chosen by index or condition, see indexing.cc. places (n) are positions in x.
#pragma once

#include "lmx/kernels.h"
#include "ops/array/broadcast.h"

namespace lmx::ops {

// y_i = x[places_i], or 0 if the place is negative.
template <class T>
struct Take {
  static constexpr const char* kName = "gather";
  const T* x;
  const int64_t* places;
  T* y;  // (n)
  int64_t n;
};

// x[places_i] = values_i, except for negative places. No place is repeated.
template <class T>
struct Put {
  static constexpr const char* kName = "scatter";
  const T* values;  // (n); null: zeros
  const int64_t* places;
  T* x;
  int64_t n;
};

// x[places_i] += values_i. Places may repeat, and the elements of a place are added in ascending order. For a device
// the elements are also listed by place: run r has the elements order[starts[r]] to order[starts[r + 1] - 1].
template <class T>
struct AddAt {
  static constexpr const char* kName = "scatter_add";
  const T* values;  // (n)
  const int64_t* places;
  T* x;
  int64_t n;
  const int64_t *order, *starts;  // (n), (runs + 1); null on the CPU
  int64_t runs;
};

// y = a where the condition is not 0, else b. The walk has the positions of the condition, a and b.
template <class T>
struct Select {
  static constexpr const char* kName = "where";
  const uint8_t* condition;
  const T *a, *b;
  T* y;  // (n)
  Walk<3> walk;
  int64_t n;
};

}  // namespace lmx::ops
