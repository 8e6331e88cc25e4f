// The product of one step for the kernel table ("mlstm_product", "mlstm_product_backward"). The gates use the LSTM's
// kernels (lmx/lstm_cell.h).
#pragma once

#include <cstdint>

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

// a is replaced by dm * b, b by dm * a.
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

template <class T>
void add_kernels(Device::Kind device, ProductKernel<T> forward, ProductBackwardKernel<T> backward) {
  add_kernel("mlstm_product", device, dtype_of<T>, reinterpret_cast<AnyKernel>(forward));
  add_kernel("mlstm_product_backward", device, dtype_of<T>, reinterpret_cast<AnyKernel>(backward));
}

void add_cpu_kernels();  // f32 and f64

}  // namespace lmx::mlstm
