// Arguments of the kernels of one step's product. The gates use the LSTM's kernels (lmx/lstm_cell.h).
#pragma once

#include <cstdint>

#include "lmx/kernels.h"

namespace lmx::mlstm {

// m = a * b, elementwise.
template <class T>
struct ProductStep {
  static constexpr const char* kName = "mlstm_product";
  const T* a;
  const T* b;
  T* m;
  int64_t n;
};

// a is replaced by dm * b, b by dm * a.
template <class T>
struct ProductBackwardStep {
  static constexpr const char* kName = "mlstm_product_backward";
  T* a;
  T* b;
  const T* dm;
  int64_t n;
};

}  // namespace lmx::mlstm
