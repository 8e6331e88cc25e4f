#include "backend/cuda/parts.cuh"
#include "optim/measure.h"

namespace lmx::optim {
namespace {

// A block for each part of each tensor.
template <class T>
__global__ void square_part(SquaredSums<T> a, double* parts) {
  cuda::wait_for_previous();
  const int64_t part = blockIdx.x;
  const int64_t k = cuda::range_of(part, a.count, [&a](int64_t i) { return a.tensors[i].first_part; });
  const SquaredTensor<T> t = a.tensors[k];
  const int64_t begin = (part - t.first_part) * a.kPart, end = begin + a.kPart;
  const T* x = t.x;
  const double sum = cuda::block_sum_of(begin, end < t.n ? end : t.n, [x](int64_t i) {
    const auto value = static_cast<double>(x[i]);
    return value * value;
  });
  if (threadIdx.x == 0) parts[part] = sum;
}

// A block for each tensor.
template <class T>
__global__ void finish_squares(SquaredSums<T> a, const double* parts) {
  cuda::wait_for_previous();
  const SquaredTensor<T> t = a.tensors[blockIdx.x];
  const int64_t count = (t.n + a.kPart - 1) / a.kPart;
  const double sum = cuda::block_sum_of(t.first_part, t.first_part + count, [parts](int64_t i) { return parts[i]; });
  if (threadIdx.x == 0) *t.sum = sum;
}

template <class T>
void squared_sums(Context& ctx, const SquaredSums<T>& a) {
  Tensor parts = ctx.empty(Shape{a.parts}, DType::f64, MemClass::other);
  if (a.parts > 0) cuda::launch(ctx, a.kName, cuda::summing_grid(a.parts), square_part<T>, a, parts.data<double>());
  cuda::launch(ctx, a.kName, cuda::summing_grid(a.count), finish_squares<T>, a, parts.data<double>());
}

template <class T>
struct AverageElement {
  AverageRows<T> a;
  LMX_HD int64_t count() const { return a.steps.count * a.steps.width; }
  __device__ void operator()(int64_t i) const {
    const AverageSteps& s = a.steps;
    const auto [row, column] = cuda::position_of(i, s.width);
    const int64_t times = s.row_times ? s.row_times[row] : s.times;
    const int64_t at = s.rows ? s.rows[row] * s.width + column : i;
    if (times <= 0) return;
    const T part = (T(1) - a.decay) * a.value[at];
    T now = a.average[at];
    for (int64_t left = times; left > 0; --left) {
      const T before = now;
      now = average_step(before, part, a.decay);
      if (now == before) break;  // a fixed point
    }
    a.average[at] = now;
  }
};

template <class T>
void average_all(Context& ctx, const AverageAll<T>& a) {
  cuda::launch_together<AverageElement<T>>(ctx, a.kName, a.averages, a.count);
}

const KernelAdder adder(Device::Kind::cuda, squared_sums<float>, squared_sums<double>, average_all<float>,
                        average_all<double>);

}  // namespace
}  // namespace lmx::optim
