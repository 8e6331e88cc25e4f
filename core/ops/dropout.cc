// y_ij = x_ij / (1 - p) with probability 1 - p, else 0; dx likewise with the same mask.
//
// The mask is a pure function of (key, row id, column). The backward pass computes it again instead of storing it.
// Columns are processed in groups of 64: column 64 g + 16 w + l uses word w of Philox block 16 g + l of its row. So the
// blocks of a group are computed in parallel, and their words are stored as whole vectors.
#include "ops/common.h"
#include "ops/dropout_mask.h"

namespace lmx {
namespace {

using namespace ops;

constexpr int kLanes = 16, kGroup = 4 * kLanes;
constexpr uint32_t kDomain = 4;      // third counter word: separates the mask from the other uses of lmx/random.h
constexpr int64_t kChunk = 1 << 12;  // columns of one piece of work; a multiple of a group
constexpr int kColumnBits = 32 + 2;  // the number of a block in its row fits into one counter word

// The words of a group, whose first block in the row is `first`. The function is the same as lmx::philox (a test
// compares them). The rounds are unrolled inside the loop over blocks, since the compiler vectorises this form.
[[gnu::always_inline]] inline void draw(uint64_t key, uint64_t row, uint32_t first, uint32_t (&words)[4][kLanes]) {
  const auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  const auto row0 = static_cast<uint32_t>(row), row1 = static_cast<uint32_t>(row >> 32);
#pragma omp simd
  for (uint32_t l = 0; l < kLanes; ++l) {
    uint32_t c0 = first + l, c1 = row0, c2 = kDomain, c3 = row1, k0 = key0, k1 = key1;
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c1 = static_cast<uint32_t>(p1);
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    words[0][l] = c0;
    words[1][l] = c1;
    words[2][l] = c2;
    words[3][l] = c3;
  }
}

// n columns of row `row`; the first column uses its word of block `block`.
template <class T>
LMX_SIMD void apply_row(const T* x, T* y, const DropMask& mask, uint64_t row, uint32_t block, int64_t n) {
  const T scale = static_cast<T>(mask.keep_scale);
  const uint32_t threshold = mask.threshold;
  uint32_t words[4][kLanes];
  for (; n >= kGroup; x += kGroup, y += kGroup, n -= kGroup, block += kLanes) {
    draw(mask.key, row, block, words);
    for (int w = 0; w < 4; ++w) {
      for (int l = 0; l < kLanes; ++l) {
        const int at = w * kLanes + l;
        y[at] = x[at] * (words[w][l] < threshold ? T(0) : scale);
      }
    }
  }
  if (n == 0) return;
  draw(mask.key, row, block, words);
  const uint32_t* word = &words[0][0];
  for (int64_t at = 0; at < n; ++at) y[at] = x[at] * (word[at] < threshold ? T(0) : scale);
}

}  // namespace

namespace ops {

void drop_row(const float* x, float* y, const DropMask& mask, uint64_t row, int64_t first, int64_t n) {
  apply_row<float>(x, y, mask, row, static_cast<uint32_t>(first / 4), n);
}
void drop_row(const double* x, double* y, const DropMask& mask, uint64_t row, int64_t first, int64_t n) {
  apply_row<double>(x, y, mask, row, static_cast<uint32_t>(first / 4), n);
}

}  // namespace ops

namespace {

// x as rows of `cols` columns, one row for each id of `ids`.
Tensor apply(const Tensor& x, const DropMask& mask, const std::vector<uint64_t>& ids, int64_t cols) {
  Tensor y = x.like(MemClass::activations);
  const auto rows = static_cast<int64_t>(ids.size());
  const int64_t chunks = (cols + kChunk - 1) / kChunk;
  with_values("dropout", x, [&](auto zero) {
    using T = decltype(zero);
    const T* px = x.data<T>();
    T* py = y.data<T>();
    parallel_for(rows * chunks, kChunk / std::clamp<int64_t>(cols, 1, kChunk), [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t row = piece / chunks, from = piece % chunks * kChunk, at = row * cols + from;
        drop_row(px + at, py + at, mask, ids[static_cast<size_t>(row)], from, std::min(kChunk, cols - from));
      }
    });
  });
  return y;
}

Var masked(Context& ctx, const Var& x, double p, RandomKey key, std::vector<uint64_t> rows, int64_t cols) {
  LMX_CHECK(cols >> kColumnBits == 0, "dropout of rows of ", cols);
  const DropMask mask(p, key);
  Var out(apply(x.value(), mask, rows, cols));
  if (recording(ctx, {&x})) {
    ctx.tape->record("dropout", {x}, {out}, [&ctx, x, out, mask, rows = std::move(rows), cols](Tape&) {
      Tape::accumulate(ctx, x, apply(Tape::grad_of(out), mask, rows, cols));
    });
  }
  return out;
}

bool active(const Context& ctx, double p) {
  if (!(p >= 0 && p < 1)) throw UserError(str("[dropout] probability ", p, ": must be in [0, 1)"));
  return ctx.training && p > 0;
}

}  // namespace

Var dropout(Context& ctx, const Var& x, double p, RandomKey key, const std::vector<uint64_t>& row_ids) {
  const Matrix m = fold(x.shape());
  if (static_cast<int64_t>(row_ids.size()) != m.rows) {
    throw UserError(str("[dropout] ", row_ids.size(), " row ids for x ", x.shape(), ": one for each of its ", m.rows,
                        " rows expected"));
  }
  return active(ctx, p) ? masked(ctx, x, p, key, row_ids, m.cols) : x;
}

Var dropout(Context& ctx, const Var& x, double p, RandomKey key) {
  return active(ctx, p) ? masked(ctx, x, p, key, {0}, x.value().numel()) : x;
}

}  // namespace lmx
