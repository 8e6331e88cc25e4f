#include "backend/cuda/columns.cuh"
#include "ops/common.h"

namespace lmx::ops {
namespace {

template <class T>
struct ScaleElement {
  Scale<T> a;
  __device__ void operator()(int64_t i) const { a.x[i] *= a.factor; }
};
template <class T>
struct GatherElement {
  GatherRows<T> a;
  bool aligned() const { return a.width % cuda::kQuad == 0 && cuda::aligned_quads(a.table, a.rows); }
  __device__ void operator()(int64_t i) const { elements<1>(i); }
  __device__ void quad(int64_t i) const { elements<cuda::kQuad>(i); }
  template <int N>
  __device__ void elements(int64_t i) const {
    const auto [row, column] = cuda::position_of(i, a.width);
    T found[N];
    cuda::elements_at(a.table + a.ids[row] * a.width + column, found);
    cuda::put_elements(a.rows + i, found);
  }
};
template <class T>
void gather_rows(Context& ctx, const GatherRows<T>& a) {
  cuda::launch_quads(ctx, a.kName, a.n * a.width, GatherElement<T>{a});
}
template <class T, class S>
struct ColumnValue {
  ColumnSums<T, S> a;
  template <int N>
  __device__ void add(int64_t row, int64_t column, T (&sums)[1][N]) const {
    S x[N];
    cuda::elements_at(a.x + row * a.cols + column, x);
    for (int e = 0; e < N; ++e) sums[0][e] += static_cast<T>(x[e]);
  }
};

template <class T, class S>
void column_sums(Context& ctx, const ColumnSums<T, S>& a) {
  cuda::sum_columns_of<T, 1>(ctx, a.kName, {a.rows, a.cols, cuda::aligned_quads(a.x)}, ColumnValue<T, S>{a},
                             cuda::PutSums<T>{a.sums, a.beta});
}

const KernelAdder elements = cuda::each_kernels<ScaleElement>();
const KernelAdder rows(Device::Kind::cuda, gather_rows<float>, gather_rows<double>);
const KernelAdder sums(Device::Kind::cuda, column_sums<float, float>, column_sums<double, double>,
                       column_sums<float, bfloat16>, column_sums<float, float16>);

}  // namespace
}  // namespace lmx::ops
