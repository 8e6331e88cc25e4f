// The pointwise kernels of one step's product (lmx/pointwise.h). The gates use the LSTM's kernels (lmx/lstm_cell.h).
#pragma once

#include <cstdint>

#include "lmx/kernels.h"
#include "lmx/math.h"
#include "lmx/operand.h"

namespace lmx::mlstm {

// m = a * b, elementwise; all are (B, H).
template <class T>
struct ProductStep {
  static constexpr const char* kName = "mlstm_product";
  static constexpr int64_t kGrain = 1 << 14;
  const T *a, *b;
  T* m;
  int64_t batch, cells;
  OperandTarget operand = {};  // of m

  LMX_HD void operator()(int64_t row, int64_t j) const {
    const int64_t at = row * cells + j;
    m[at] = a[at] * b[at];
  }
  LMX_HD void write_operand(int64_t row, int64_t j) const { operand.store(row * cells + j, m[row * cells + j]); }
};

// a is replaced by dm * b, b by dm * a.
template <class T>
struct ProductBackwardStep {
  static constexpr const char* kName = "mlstm_product_backward";
  static constexpr int64_t kGrain = 1 << 14;
  T *a, *b;
  const T* dm;
  int64_t batch, cells;
  OperandTarget operand = {};  // of b

  LMX_HD void operator()(int64_t row, int64_t j) const {
    const int64_t at = row * cells + j;
    const T was = a[at], other = b[at], slope = dm[at];
    a[at] = slope * other;
    b[at] = slope * was;
  }
  LMX_HD void write_operand(int64_t row, int64_t j) const { operand.store(row * cells + j, b[row * cells + j]); }
};

}  // namespace lmx::mlstm
