#include "autograd/gradient_sums.h"
#include "lmx/cuda_launch.cuh"

namespace lmx {
namespace {

template <class T>
struct FillElement {
  Fill<T> a;
  __device__ void operator()(int64_t i) const { a.x[i] = a.value; }
};
template <class T>
struct AddElement {
  AddTensor<T> a;
  __device__ void operator()(int64_t i) const { a.sum[i] += a.x[i]; }
};
template <class T>
struct AddRowElement {
  AddRows<T> a;
  int64_t count() const { return a.n * a.width; }
  __device__ void operator()(int64_t i) const { a.table[a.ids[i / a.width] * a.width + i % a.width] += a.rows[i]; }
};
template <class T>
struct SumRunElement {
  SumRuns<T> a;
  int64_t count() const { return a.n * a.width; }
  __device__ void operator()(int64_t i) const {
    const int64_t u = i / a.width, column = i % a.width;
    T sum = a.rows[a.starts[u]][column];
    for (int64_t k = a.starts[u] + 1; k < a.starts[u + 1]; ++k) sum += a.rows[k][column];
    a.sums[i] = sum;
  }
};

const KernelAdder adder = cuda::each_kernels<FillElement, AddElement, AddRowElement, SumRunElement>();

}  // namespace
}  // namespace lmx
