#include "autograd/gradient_sums.h"
#include "lmx/quads.cuh"

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
  bool aligned() const { return cuda::aligned_quads(a.x, a.sum); }
  __device__ void operator()(int64_t i) const { elements<1>(i); }
  __device__ void quad(int64_t i) const { elements<cuda::kQuad>(i); }
  template <int N>
  __device__ void elements(int64_t i) const {
    T x[N], sum[N];
    cuda::elements_at(a.x + i, x);
    cuda::elements_at(a.sum + i, sum);
    for (int e = 0; e < N; ++e) sum[e] += x[e];
    cuda::put_elements(a.sum + i, sum);
  }
};
template <class T>
struct AddRowElement {
  AddRows<T> a;
  int64_t count() const { return a.n * a.width; }
  __device__ void operator()(int64_t i) const {
    const auto [row, column] = cuda::position_of(i, a.width);
    a.table[a.ids[row] * a.width + column] += a.rows[i];
  }
};
template <class T>
struct SumRunElement {
  SumRuns<T> a;
  int64_t count() const { return a.n * a.width; }
  __device__ void operator()(int64_t i) const {
    const auto [u, column] = cuda::position_of(i, a.width);
    T sum = a.rows[a.starts[u]][column];
    for (int64_t k = a.starts[u] + 1; k < a.starts[u + 1]; ++k) sum += a.rows[k][column];
    a.sums[i] = sum;
  }
};

const KernelAdder adder = cuda::each_kernels<FillElement, AddRowElement, SumRunElement>();
const KernelAdder sums(Device::Kind::cuda, cuda::each_quad<AddElement<float>>, cuda::each_quad<AddElement<double>>);

}  // namespace
}  // namespace lmx
