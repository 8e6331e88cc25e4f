#include "backend/convert.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "lmx/error.h"
#include "lmx/kernels.h"
#include "lmx/parallel.h"

namespace lmx {
namespace {

constexpr int64_t kGrain = 1 << 13;  // numbers of one thread, which take some microseconds

LMX_SIMD void bf16_of(const float* from, bfloat16* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = bfloat16(from[i]);
}
LMX_SIMD void float_of(const bfloat16* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]);
}
LMX_SIMD void f16_of(const float* from, float16* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = float16(from[i]);
}
LMX_SIMD void float_of(const float16* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]);
}

LMX_SIMD void rounded_to_bf16(const float* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(bfloat16(from[i]));
}
LMX_SIMD void rounded_to_f16(const float* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(float16(from[i]));
}

template <class From, class To, class Convert>
void convert(const From* from, To* to, int64_t n, Convert&& f) {
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) { f(from + begin, to + begin, end - begin); });
}

// Eight numbers of two bytes. g++ and clang++ compile shuffles of this type to instructions of every x86-64 CPU.
using Eight = uint16_t __attribute__((vector_size(16)));

// The transpose of 8 x 8 numbers of two bytes, whose rows are `stride_from` and `stride_to` numbers apart. Row and
// column of a number are an index of six bits; each of three rounds interleaves the rows, which rotates this index by
// one bit.
template <class T>
[[gnu::always_inline]] inline void transpose_tile(const T* from, int64_t stride_from, T* to, int64_t stride_to) {
  static_assert(sizeof(T) == sizeof(uint16_t));
  Eight rows[8], mixed[8];
  for (int i = 0; i < 8; ++i) std::memcpy(&rows[i], from + i * stride_from, sizeof(Eight));
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) {
      mixed[2 * i] = __builtin_shufflevector(rows[i], rows[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      mixed[2 * i + 1] = __builtin_shufflevector(rows[i], rows[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    std::copy(mixed, mixed + 8, rows);
  }
  for (int i = 0; i < 8; ++i) std::memcpy(static_cast<void*>(to + i * stride_to), &rows[i], sizeof(Eight));
}

// A block of kBlock x kBlock numbers fits into the first-level cache, and a row of it is one line.
constexpr int64_t kBlock = 32;
// Columns whose blocks are transposed before those of the next columns: of each, a page of the result is written to.
constexpr int64_t kStrip = 256;

// The transpose of a whole block of numbers of two bytes. Each line of both matrices is read or written at once: with
// rows at a distance of a power of two, the lines of a block share few places of the cache, and would not stay there.
// The lines of the block below are fetched meanwhile.
template <class T>
void transpose_lines(const T* from, T* to, int64_t rows, int64_t cols) {
  T block[kBlock][kBlock];
  for (int64_t r = 0; r < kBlock; ++r) {
    std::memcpy(static_cast<void*>(block[r]), from + r * cols, sizeof(block[r]));
    __builtin_prefetch(from + (r + kBlock) * cols);
    __builtin_prefetch(to + r * rows + kBlock, 1);
  }
  for (int64_t c = 0; c < kBlock; c += 8) {
    T lines[8][kBlock];
    for (int64_t r = 0; r < kBlock; r += 8) transpose_tile(&block[r][c], kBlock, &lines[0][r], kBlock);
    for (int64_t i = 0; i < 8; ++i) std::memcpy(static_cast<void*>(to + (c + i) * rows), lines[i], sizeof(lines[i]));
  }
}

// Rows [r0, r1) and columns [c0, c1) of `from` (rows, cols), and the same elements of `to` (cols, rows).
struct Block {
  int64_t r0, r1, c0, c1;
};
template <class From, class To>
void transpose_block(const From* from, To* to, int64_t rows, int64_t cols, const Block& block) {
  int64_t r_done = block.r0, c_done = block.c0;  // whole tiles have [r0, r_done) x [c0, c_done)
  if constexpr (std::is_same_v<From, To> && sizeof(From) == sizeof(uint16_t)) {
    if (block.r1 - block.r0 == kBlock && block.c1 - block.c0 == kBlock)
      return transpose_lines(from + block.r0 * cols + block.c0, to + block.c0 * rows + block.r0, rows, cols);
    r_done += (block.r1 - block.r0) / 8 * 8;
    c_done += (block.c1 - block.c0) / 8 * 8;
    for (int64_t c = block.c0; c < c_done; c += 8)
      for (int64_t r = block.r0; r < r_done; r += 8) transpose_tile(from + r * cols + c, cols, to + c * rows + r, rows);
  }
  for (int64_t c = block.c0; c < block.c1; ++c)
    for (int64_t r = c < c_done ? r_done : block.r0; r < block.r1; ++r)
      to[c * rows + r] = static_cast<To>(from[r * cols + c]);
}

template <class From, class To>
void transpose_blocks(const From* from, To* to, int64_t rows, int64_t cols) {
  const int64_t blocks = (cols + kBlock - 1) / kBlock;
  parallel_for(
      blocks, std::max<int64_t>(1, 4 * kGrain / (kBlock * std::max<int64_t>(rows, 1))),
      [&](int64_t begin, int64_t end) {
        const int64_t last = std::min(cols, end * kBlock);
        for (int64_t c0 = begin * kBlock; c0 < last; c0 += kStrip)
          for (int64_t r = 0; r < rows; r += kBlock)
            for (int64_t c = c0; c < std::min(last, c0 + kStrip); c += kBlock)
              transpose_block(from, to, rows, cols, {r, std::min(rows, r + kBlock), c, std::min(cols, c + kBlock)});
      });
}

}  // namespace

void to_bf16(const float* from, bfloat16* to, int64_t n) {
  convert(from, to, n, [](const float* f, bfloat16* t, int64_t k) { bf16_of(f, t, k); });
}
void from_bf16(const bfloat16* from, float* to, int64_t n) {
  convert(from, to, n, [](const bfloat16* f, float* t, int64_t k) { float_of(f, t, k); });
}
void to_f16(const float* from, float16* to, int64_t n) {
  convert(from, to, n, [](const float* f, float16* t, int64_t k) { f16_of(f, t, k); });
}
void from_f16(const float16* from, float* to, int64_t n) {
  convert(from, to, n, [](const float16* f, float* t, int64_t k) { float_of(f, t, k); });
}

void round_to_bf16(const float* from, float* to, int64_t n) {
  convert(from, to, n, [](const float* f, float* t, int64_t k) { rounded_to_bf16(f, t, k); });
}
void round_to_f16(const float* from, float* to, int64_t n) {
  convert(from, to, n, [](const float* f, float* t, int64_t k) { rounded_to_f16(f, t, k); });
}

void widen(Context& ctx, const void* data, DType type, int64_t count, float* to) {
  if (type == DType::bf16) {
    run_kernel(ctx, Convert<bfloat16, float>{static_cast<const bfloat16*>(data), to, count});
  } else {
    LMX_CHECK(type == DType::f16, "widening of ", name_of(type));
    run_kernel(ctx, Convert<float16, float>{static_cast<const float16*>(data), to, count});
  }
}
Tensor widened(Context& ctx, const void* data, DType type, int64_t count) {
  Tensor wide = ctx.empty({count});
  widen(ctx, data, type, count, wide.data<float>());
  return wide;
}

void transpose(const float* from, float* to, int64_t rows, int64_t cols) {
  transpose_blocks(from, to, rows, cols);
}
void transpose(const bfloat16* from, bfloat16* to, int64_t rows, int64_t cols) {
  transpose_blocks(from, to, rows, cols);
}
void transpose(const double* from, double* to, int64_t rows, int64_t cols) {
  transpose_blocks(from, to, rows, cols);
}

namespace {

void to_bf16_kernel(Context&, const Convert<float, bfloat16>& a) {
  to_bf16(a.from, a.to, a.n);
}
void to_f16_kernel(Context&, const Convert<float, float16>& a) {
  to_f16(a.from, a.to, a.n);
}
void from_bf16_kernel(Context&, const Convert<bfloat16, float>& a) {
  from_bf16(a.from, a.to, a.n);
}
void from_f16_kernel(Context&, const Convert<float16, float>& a) {
  from_f16(a.from, a.to, a.n);
}
template <class From, class To>
void convert_floats(Context&, const Convert<From, To>& a) {
  convert(a.from, a.to, a.n, [](const From* f, To* t, int64_t k) {
    for (int64_t i = 0; i < k; ++i) t[i] = static_cast<To>(f[i]);
  });
}
template <class From, class To>
void transpose_matrix(Context&, const Transpose<From, To>& a) {
  transpose_blocks(a.from, a.to, a.rows, a.cols);
}

const KernelAdder adder(Device::Kind::cpu, to_bf16_kernel, to_f16_kernel, from_bf16_kernel, from_f16_kernel,
                        convert_floats<float, double>, convert_floats<double, float>, transpose_matrix<float, float>,
                        transpose_matrix<float, bfloat16>, transpose_matrix<float, float16>,
                        transpose_matrix<bfloat16, bfloat16>, transpose_matrix<float16, float16>,
                        transpose_matrix<double, double>);

}  // namespace

}  // namespace lmx
