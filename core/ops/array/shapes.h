// Arguments of the kernel that copies a part of a dimension, see shapes.cc.
#pragma once

#include "lmx/kernels.h"

namespace lmx::ops {

// Copies `runs` runs of `width` elements. `from_stride` and `to_stride` are the distances between the first elements
// of two runs.
template <class T>
struct CopyRuns {
  static constexpr const char* kName = "copy";
  const T* from;
  T* to;
  int64_t runs, width, from_stride, to_stride;
};

}  // namespace lmx::ops
