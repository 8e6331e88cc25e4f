#include "lmx/cuda_launch.cuh"
#include "ops/common.h"

namespace lmx::ops {
namespace {

constexpr int64_t kPart = 64;  // rows that one thread adds

template <class T>
struct ScaleElement {
  Scale<T> a;
  __device__ void operator()(int64_t i) const { a.x[i] *= a.factor; }
};
template <class T>
struct GatherElement {
  GatherRows<T> a;
  int64_t count() const { return a.n * a.width; }
  __device__ void operator()(int64_t i) const { a.rows[i] = a.table[a.ids[i / a.width] * a.width + i % a.width]; }
};
// Column i % cols of part i / cols.
template <class T>
struct ColumnPart {
  ColumnSums<T> a;
  T* parts;  // (parts, cols)
  __device__ void operator()(int64_t i) const {
    const int64_t column = i % a.cols, begin = i / a.cols * kPart;
    const int64_t end = begin + kPart < a.rows ? begin + kPart : a.rows;
    T sum = 0;
    for (int64_t r = begin; r < end; ++r) sum += a.x[r * a.cols + column];
    parts[i] = sum;
  }
};
template <class T>
struct AddColumnParts {
  ColumnSums<T> a;
  const T* parts;
  int64_t count;
  __device__ void operator()(int64_t column) const {
    T sum = a.sums[column];
    for (int64_t p = 0; p < count; ++p) sum += parts[p * a.cols + column];
    a.sums[column] = sum;
  }
};

template <class T>
void column_sums(Context& ctx, const ColumnSums<T>& a) {
  const int64_t count = (a.rows + kPart - 1) / kPart;
  Tensor parts = ctx.empty(Shape{count, a.cols}, dtype_of<T>);
  launch_each(ctx, a.kName, parts.numel(), ColumnPart<T>{a, parts.data<T>()});
  launch_each(ctx, a.kName, a.cols, AddColumnParts<T>{a, parts.data<T>(), count});
}

const KernelAdder elements = cuda::each_kernels<ScaleElement, GatherElement>();
const KernelAdder sums(Device::Kind::cuda, column_sums<float>, column_sums<double>);

}  // namespace
}  // namespace lmx::ops
