#include "lmx/quads.cuh"
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
    const auto [row, block] = cuda::position_of(i, blocks);
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

// The same for four neighbouring blocks: sixteen columns, in four quads.
template <class T>
struct DropoutQuads {
  Dropout<T> a;
  int64_t quads;  // of blocks of a row
  __device__ void operator()(int64_t i) const {
    const auto [row, quad] = cuda::position_of(i, quads);
    const int64_t block = quad * cuda::kQuad;
    const int64_t at = row * a.cols + block / kLanes * kMaskColumns + block % kLanes;
    const T scale = static_cast<T>(a.mask.keep_scale);
    cuda::Quad<T> y[4];
    for (int w = 0; w < 4; ++w) y[w] = cuda::quad_at(a.x + at + w * kLanes);
    const uint64_t id = a.row_ids[row];
    for (int e = 0; e < cuda::kQuad; ++e) {
      const MaskWords words = mask_words(a.mask.key, id, static_cast<uint32_t>(block + e));
      for (int w = 0; w < 4; ++w) y[w].v[e] *= mask_factor(words.word[w], a.mask.threshold, scale);
    }
    for (int w = 0; w < 4; ++w) {
      cuda::put_quad(a.y + at + w * kLanes, y[w]);
      if (a.operand.to) cuda::put_quad(a.operand, at + w * kLanes, y[w]);
    }
  }
};

template <class T>
void forward(Context& ctx, const Dropout<T>& a) {
  if (a.cols % kMaskColumns == 0 && cuda::aligned_quads(a.x, a.y) && cuda::aligned_quads(a.operand)) {
    const int64_t quads = a.cols / (cuda::kQuad * cuda::kQuad);
    return launch_each(ctx, a.kName, a.rows * quads, DropoutQuads<T>{a, quads});
  }
  const int64_t blocks = (a.cols + kMaskColumns - 1) / kMaskColumns * kLanes;
  launch_each(ctx, a.kName, a.rows * blocks, DropoutBlock<T>{a, blocks});
}

const KernelAdder adder(Device::Kind::cuda, forward<float>, forward<double>);

}  // namespace
}  // namespace lmx::ops
