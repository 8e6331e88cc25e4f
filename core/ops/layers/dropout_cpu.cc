// Columns are processed in groups of 64: column 64 g + 16 w + l uses word w of Philox block 16 g + l of its row. So the
// blocks of a group are computed in parallel, and their words are stored as whole vectors.
#include "ops/layers/dropout.h"

#include "ops/common.h"

namespace lmx::ops {
namespace {

constexpr int kLanes = kMaskColumns / 4;
constexpr int64_t kChunk = 1 << 12;  // columns of one piece of work; a multiple of a group

// The words of a group, whose first block in the row is `first`. The compiler vectorises this loop over blocks; with
// `omp simd` it would give each vector lane a separate struct of words, and would not.
[[gnu::always_inline]] inline void draw(uint64_t key, uint64_t row, uint32_t first, uint32_t (&words)[4][kLanes]) {
#pragma GCC ivdep
  for (uint32_t l = 0; l < kLanes; ++l) {
    const MaskWords block = mask_words(key, row, first + l);
    for (int w = 0; w < 4; ++w) words[w][l] = block.word[w];
  }
}

// n columns of row `row`; the first column uses its word of block `block`.
template <class T>
LMX_SIMD void apply_row(const T* x, T* y, const DropMask& mask, uint64_t row, uint32_t block, int64_t n) {
  const T scale = static_cast<T>(mask.keep_scale);
  const uint32_t threshold = mask.threshold;
  uint32_t words[4][kLanes];
  for (; n >= kMaskColumns; x += kMaskColumns, y += kMaskColumns, n -= kMaskColumns, block += kLanes) {
    draw(mask.key, row, block, words);
    for (int w = 0; w < 4; ++w) {
      for (int l = 0; l < kLanes; ++l) {
        const int at = w * kLanes + l;
        y[at] = x[at] * mask_factor(words[w][l], threshold, scale);
      }
    }
  }
  if (n == 0) return;
  draw(mask.key, row, block, words);
  const uint32_t* word = &words[0][0];
  for (int64_t at = 0; at < n; ++at) y[at] = x[at] * mask_factor(word[at], threshold, scale);
}

template <class T>
void forward(Context&, const Dropout<T>& a) {
  const int64_t chunks = (a.cols + kChunk - 1) / kChunk;
  parallel_for(a.rows * chunks, kChunk / std::clamp<int64_t>(a.cols, 1, kChunk), [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t row = piece / chunks, from = piece % chunks * kChunk, at = row * a.cols + from;
      drop_row(a.x + at, a.y + at, a.mask, a.row_ids[row], from, std::min(kChunk, a.cols - from));
    }
  });
}

const KernelAdder adder(Device::Kind::cpu, forward<float>, forward<double>);

}  // namespace

void drop_row(const float* x, float* y, const DropMask& mask, uint64_t row, int64_t first, int64_t n) {
  apply_row<float>(x, y, mask, row, static_cast<uint32_t>(first / 4), n);
}
void drop_row(const double* x, double* y, const DropMask& mask, uint64_t row, int64_t first, int64_t n) {
  apply_row<double>(x, y, mask, row, static_cast<uint32_t>(first / 4), n);
}

}  // namespace lmx::ops
