// Arguments of the kernel of dropout, see dropout.cc.
#pragma once

#include "lmx/kernels.h"
#include "lmx/operand.h"
#include "ops/layers/dropout_mask.h"

namespace lmx::ops {

// y = x * mask; also dx of dy.
template <class T>
struct Dropout {
  static constexpr const char* kName = "dropout";
  const T* x;  // (rows, cols)
  T* y;
  DropMask mask;
  const uint64_t* row_ids;  // (rows)
  int64_t rows, cols;
  OperandTarget operand = {};  // of y
};

}  // namespace lmx::ops
