#include "backend/cuda/parts.cuh"
#include "comm/rows.h"

namespace lmx::comm {
namespace {

// Element i of the rows that are used.
template <class T>
struct CopyElement {
  CopyRows<T> a;
  int64_t count() const { return a.rows * a.columns; }
  __device__ void operator()(int64_t i) const {
    const auto [row, column] = cuda::position_of(i, a.columns);
    const T *from = a.from.row(row), *plus = a.plus.row(row);
    T value = from ? from[column] : T(0);
    if (plus) value += a.factor * plus[column];
    a.to.row(row)[column] = value;
  }
};
struct ScaleElement {
  ScaleRows<float> a;
  int64_t count() const { return a.rows * a.columns; }
  __device__ void operator()(int64_t i) const {
    const auto [row, column] = cuda::position_of(i, a.columns);
    a.x.row(row)[column] *= a.factor;
  }
};

// A block for each part of the elements.
__global__ void square_part_of_rows(SquareRows<float> a, double* parts) {
  cuda::wait_for_previous();
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * cuda::kPartSize, n = a.rows * a.columns;
  const int64_t end = begin + cuda::kPartSize < n ? begin + cuda::kPartSize : n;
  const double sum = cuda::block_sum_of(begin, end, [&a](int64_t i) {
    const auto [row, column] = cuda::position_of(i, a.columns);
    const auto value = static_cast<double>(a.x.row(row)[column]);
    return value * value;
  });
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

void square_rows(Context& ctx, const SquareRows<float>& a) {
  const int64_t count = (a.rows * a.columns + cuda::kPartSize - 1) / cuda::kPartSize;
  if (count == 0) return;
  Tensor parts = ctx.empty(Shape{count}, DType::f64, MemClass::other);
  cuda::launch(ctx, a.kName, cuda::summing_grid(count, a.rows * a.columns), square_part_of_rows, a,
               parts.data<double>());
  cuda::launch(ctx, a.kName, cuda::summing_grid(1, count), cuda::add_parts<double>, parts.data<double>(), count, a.sum);
}

const KernelAdder copies = cuda::each_kernels<CopyElement>();
const KernelAdder adder(Device::Kind::cuda, cuda::each<ScaleElement>, square_rows);

}  // namespace
}  // namespace lmx::comm
