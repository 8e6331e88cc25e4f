// Arguments of the kernels of arithmetic with a number, see arithmetic.cc.
#pragma once

#include "lmx/kernels.h"

namespace lmx::ops {

// y = x + constant
template <class T>
struct AddScalar {
  static constexpr const char* kName = "add_scalar";
  const T* x;
  T* y;
  int64_t n;
  T constant;
};

}  // namespace lmx::ops
