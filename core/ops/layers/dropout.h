// The arguments of the kernel of dropout, see dropout.cc, and what other ops that drop elements share with it.
#pragma once

#include <vector>

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

// The mask of a matrix, in the memory of ctx.device: `columns` columns, and a row for each id. Without arguments it
// drops nothing.
struct RowMask {
  DropMask mask;
  Uploaded<uint64_t> row_ids;
  int64_t cols = 0;
  RowMask() = default;
  RowMask(Context& ctx, const DropMask& of_row, std::vector<uint64_t> ids, int64_t columns);
};

// Whether an op drops elements with probability p: in training, if p > 0. UserError: p is not in [0, 1).
bool drops(const Context& ctx, const char* op, double p);
// UserError: there is not one id for each row of x.
void check_row_ids(const char* op, const std::vector<uint64_t>& row_ids, const Shape& x);

}  // namespace lmx::ops
