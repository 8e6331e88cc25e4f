#include "backend/cuda/parts.cuh"
#include "optim/measure.h"

namespace lmx::optim {
namespace {

template <class T>
__device__ double squares_of(const void* values, int64_t begin, int64_t end) {
  const T* x = static_cast<const T*>(values);
  return cuda::block_sum_of(begin, end, [x](int64_t i) {
    const auto value = static_cast<double>(x[i]);
    return value * value;
  });
}

// A block of threads for each block of each tensor.
__global__ void square_block(SquaredBlocks<double> a) {
  cuda::wait_for_previous();
  const int64_t number = blockIdx.x;
  const int64_t k = cuda::range_of(number, a.count, [&a](int64_t i) { return a.tensors[i].first_block; });
  const SquaredTensor t = a.tensors[k];
  const int64_t block = number - t.first_block, begin = block * kSumBlock, end = t.block_end(begin);
  double sum = 0;
  if (t.values == SquaredTensor::summed)
    sum = static_cast<const double*>(t.x)[block];
  else
    sum = t.values == SquaredTensor::wide ? squares_of<double>(t.x, begin, end) : squares_of<float>(t.x, begin, end);
  if (threadIdx.x == 0) a.blocks[number] = sum;
}

// A block of threads for each tensor.
__global__ void sum_blocks(SquaredSums<double> a) {
  cuda::wait_for_previous();
  const SquaredTensor t = a.tensors[blockIdx.x];
  const double* own = a.blocks + t.first_block;
  const double sum = cuda::block_sum_of(0, t.blocks(), [own](int64_t i) { return own[i]; });
  if (threadIdx.x == 0) a.sums[blockIdx.x] = sum;
}

void squared_blocks(Context& ctx, const SquaredBlocks<double>& a) {
  cuda::launch(ctx, a.kName, cuda::summing_grid(a.total, kSumBlock), square_block, a);
}

void squared_sums(Context& ctx, const SquaredSums<double>& a) {
  cuda::launch(ctx, a.kName, cuda::summing_grid(a.count, a.most_blocks), sum_blocks, a);
}

struct ClipElement {
  ClipFactors<double> a;
  LMX_HD int64_t count() const { return 1; }  // one thread: the additions have the order of the CPU's
  __device__ void operator()(int64_t) const { a.compute(); }
};

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

const KernelAdder adder(Device::Kind::cuda, squared_blocks, squared_sums, cuda::each<ClipElement>, average_all<float>,
                        average_all<double>);

}  // namespace
}  // namespace lmx::optim
