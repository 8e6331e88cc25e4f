// Arguments of the kernels of max, see reduce.cc. x is (outer, size, inner) around the reduced dimension; its columns
// (outer * inner) have one result each.
#pragma once

#include "lmx/kernels.h"

namespace lmx::ops {

template <class T>
struct Max {
  static constexpr const char* kName = "max";
  const T* x;
  T* y;             // (columns)
  int32_t* places;  // (columns) the position of the first largest element in its column; of a NaN if there is one
  int64_t columns, size, inner;
};

template <class T>
struct MaxBackward {
  static constexpr const char* kName = "max";
  const T* dy;            // (columns)
  const int32_t* places;  // (columns)
  T* dx;                  // in: zeros
  int64_t columns, size, inner;
};

}  // namespace lmx::ops
