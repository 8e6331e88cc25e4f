// Columns are processed in groups of 64: column 64 g + 16 w + l uses word w of Philox block 16 g + l of its row. So the
// blocks of a group are computed in parallel, and their words are stored as whole vectors.
#include "ops/layers/dropout.h"

#include <cstring>

#include "ops/common.h"

namespace lmx::ops {
namespace {

constexpr int kLanes = kMaskColumns / 4;
constexpr int64_t kChunk = 1 << 12;  // columns of one piece of work; a multiple of a group

// Vectors of numbers of 64 bits, whose lower halves are the 32 bits of Philox's words. The upper halves are ignored.
template <int kBytes>
struct Wide {
  static constexpr int kCount = kBytes / sizeof(uint64_t);
  typedef uint64_t Type __attribute__((vector_size(kBytes)));
  typedef uint32_t Lower __attribute__((vector_size(kBytes / 2)));
};

// The lower halves of the lanes of a, times those of b. For a product of vectors g++ multiplies 64 by 64 bits, which
// takes three instructions; and the function of this one depends on the instruction set, but draw() is compiled for
// two.
template <class V>
[[gnu::always_inline]] inline void multiply_halves(const V& a, const V& b, V& product) {
  asm("vpmuludq %2, %1, %0" : "=v"(product) : "v"(a), "v"(b));
}

// mask_words() of a group, whose first block in the row is `first`.
template <int kBytes>
[[gnu::always_inline]] inline void draw(uint64_t key, uint64_t row, uint32_t first, uint32_t* words) {
  using Vector = typename Wide<kBytes>::Type;
  constexpr int kCount = Wide<kBytes>::kCount;
  Vector lane;
  for (int l = 0; l < kCount; ++l) lane[l] = static_cast<uint64_t>(l);
  for (int part = 0; part < kLanes / kCount; ++part) {
    Vector c0 = lane + (first + static_cast<uint32_t>(part * kCount)), c1 = Vector{} + static_cast<uint32_t>(row),
           c2 = Vector{} + kMaskDomain, c3 = Vector{} + (row >> 32);
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      Vector p0, p1;
      multiply_halves(c0, Vector{} + kPhiloxMultiply0, p0);
      multiply_halves(c2, Vector{} + kPhiloxMultiply1, p1);
      c0 = (p1 >> 32) ^ c1 ^ k0;
      c2 = (p0 >> 32) ^ c3 ^ k1;
      c1 = p1;
      c3 = p0;
      k0 += kPhiloxWeyl0;
      k1 += kPhiloxWeyl1;
    }
    const Vector c[] = {c0, c1, c2, c3};
    for (int w = 0; w < 4; ++w) {
      const auto lower = __builtin_convertvector(c[w], typename Wide<kBytes>::Lower);
      std::memcpy(words + w * kLanes + part * kCount, &lower, sizeof(lower));
    }
  }
}

// n columns of row `row`; the first column uses its word of block `block`.
template <int kBytes, class T>
[[gnu::always_inline]] inline void apply(const T* x, T* y, const DropMask& mask, uint64_t row, uint32_t block,
                                         int64_t n) {
  const T scale = static_cast<T>(mask.keep_scale);
  const uint32_t threshold = mask.threshold;
  alignas(kBytes) uint32_t words[kMaskColumns];
  for (; n >= kMaskColumns; x += kMaskColumns, y += kMaskColumns, n -= kMaskColumns, block += kLanes) {
    draw<kBytes>(mask.key, row, block, words);
#pragma GCC ivdep
    for (int at = 0; at < kMaskColumns; ++at) y[at] = x[at] * mask_factor(words[at], threshold, scale);
  }
  if (n == 0) return;
  draw<kBytes>(mask.key, row, block, words);
  for (int64_t at = 0; at < n; ++at) y[at] = x[at] * mask_factor(words[at], threshold, scale);
}

template <class T>
void apply_avx2(const T* x, T* y, const DropMask& mask, uint64_t row, uint32_t block, int64_t n) {
  apply<32>(x, y, mask, row, block, n);
}
template <class T>
__attribute__((target("arch=x86-64-v4"))) void apply_avx512(const T* x, T* y, const DropMask& mask, uint64_t row,
                                                            uint32_t block, int64_t n) {
  apply<64>(x, y, mask, row, block, n);
}
template <class T>
void drop(const T* x, T* y, const DropMask& mask, uint64_t row, int64_t first, int64_t n) {
  const auto block = static_cast<uint32_t>(first / 4);
  has_avx512() ? apply_avx512(x, y, mask, row, block, n) : apply_avx2(x, y, mask, row, block, n);
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
  drop(x, y, mask, row, first, n);
}
void drop_row(const double* x, double* y, const DropMask& mask, uint64_t row, int64_t first, int64_t n) {
  drop(x, y, mask, row, first, n);
}

}  // namespace lmx::ops
