#include "lmx/lstm_cell.cuh"
#include "mlstm_kernels.h"

namespace lmx::mlstm {
namespace {

template <class T>
struct Product {
  ProductStep<T> s;
  __device__ void operator()(int64_t i) const { s.m[i] = s.a[i] * s.b[i]; }
};

template <class T>
struct ProductBackward {
  ProductBackwardStep<T> s;
  __device__ void operator()(int64_t i) const {
    const T was = s.a[i];
    s.a[i] = s.dm[i] * s.b[i];
    s.b[i] = s.dm[i] * was;
  }
};

template <class T>
void forward(Context&, const ProductStep<T>& s) {
  launch_each("mlstm_product", s.n, Product<T>{s});
}

template <class T>
void backward(Context&, const ProductBackwardStep<T>& s) {
  launch_each("mlstm_product_backward", s.n, ProductBackward<T>{s});
}

const KernelAdder lstm_adder = cuda::lstm_kernels();
const KernelAdder adder(Device::Kind::cuda, forward<float>, forward<double>, backward<float>, backward<double>);

}  // namespace
}  // namespace lmx::mlstm
