#include "lmx/cuda_launch.cuh"
#include "ops/layers/dropout.h"

namespace lmx::ops {
namespace {

constexpr int kLanes = kMaskColumns / 4;

// The four columns of a row that share a block of random words.
template <class T>
struct DropoutBlock {
  Dropout<T> a;
  int64_t blocks;  // of a row
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / blocks, block = i % blocks;
    const MaskWords words = mask_words(a.mask.key, a.row_ids[row], static_cast<uint32_t>(block));
    const T scale = static_cast<T>(a.mask.keep_scale);
    int64_t column = block / kLanes * kMaskColumns + block % kLanes;
    for (int w = 0; w < 4; ++w, column += kLanes) {
      const int64_t at = row * a.cols + column;
      if (column >= a.cols) continue;
      const T y = a.x[at] * mask_factor(words.word[w], a.mask.threshold, scale);
      a.y[at] = y;
      if (a.operand.to) a.operand.store(at, y);
    }
  }
};

template <class T>
void forward(Context& ctx, const Dropout<T>& a) {
  const int64_t blocks = (a.cols + kMaskColumns - 1) / kMaskColumns * kLanes;
  launch_each(ctx, a.kName, a.rows * blocks, DropoutBlock<T>{a, blocks});
}

const KernelAdder adder(Device::Kind::cuda, forward<float>, forward<double>);

}  // namespace
}  // namespace lmx::ops
