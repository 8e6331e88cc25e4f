// The product of one step, as the kernel table holds it ("mlstm_product", "mlstm_product_backward"); the gates are the
// LSTM's own kernels (lmx/lstm_cell.h).
#pragma once

#include "lmx/kernels.h"

namespace lmx::mlstm {

// m = a * b, elementwise.
template <class T>
struct ProductStep {
  const T* a;
  const T* b;
  T* m;
  int64_t n;
};

// a becomes dm * b, b becomes dm * a.
template <class T>
struct ProductBackwardStep {
  T* a;
  T* b;
  const T* dm;
  int64_t n;
};

template <class T>
using ProductKernel = void (*)(const ProductStep<T>&);
template <class T>
using ProductBackwardKernel = void (*)(const ProductBackwardStep<T>&);

void add_cpu_kernels();  // f32 and f64

}  // namespace lmx::mlstm
