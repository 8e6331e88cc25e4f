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
  __device__ void operator()(int64_t i) const { a.table[a.ids[i / a.width] * a.width + i % a.width] += a.rows[i]; }
};
template <class T>
struct SumRunElement {
  SumRuns<T> a;
  __device__ void operator()(int64_t i) const {
    const int64_t u = i / a.width, column = i % a.width;
    T sum = a.rows[a.starts[u]][column];
    for (int64_t k = a.starts[u] + 1; k < a.starts[u + 1]; ++k) sum += a.rows[k][column];
    a.sums[i] = sum;
  }
};

template <class T>
void fill(Context& ctx, const Fill<T>& a) {
  launch_each(ctx, a.kName, a.n, FillElement<T>{a});
}
template <class T>
void add(Context& ctx, const AddTensor<T>& a) {
  launch_each(ctx, a.kName, a.n, AddElement<T>{a});
}
template <class T>
void add_rows(Context& ctx, const AddRows<T>& a) {
  launch_each(ctx, a.kName, a.n * a.width, AddRowElement<T>{a});
}
template <class T>
void sum_runs(Context& ctx, const SumRuns<T>& a) {
  launch_each(ctx, a.kName, a.n * a.width, SumRunElement<T>{a});
}

const KernelAdder adder(Device::Kind::cuda, fill<float>, fill<double>, add<float>, add<double>, add_rows<float>,
                        add_rows<double>, sum_runs<float>, sum_runs<double>);

}  // namespace
}  // namespace lmx
