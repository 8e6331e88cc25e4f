// Tiles of attention on tensor cores. A block has a tile of 16 rows for each of its 1, 2 or 4 warps, and passes over
// the rows of the other side (keys for a tile of queries, queries for a tile of keys) in tiles of 32. The operands of a
// block are in shared memory, rounded to 16 bits; products stay in registers, and are rounded there to become the left
// side of the next product.
#pragma once

#include <cstring>
#include <type_traits>

#include "backend/cuda/mma.cuh"
#include "backend/cuda/reduce.cuh"
#include "lmx/quads.cuh"
#include "ops/attention/mma_scores.cuh"
#include "ops/attention/tiles.cuh"

namespace lmx::ops {

constexpr int kWarpRows = 16, kOtherRows = 32, kMostWarps = 4, kMmaThreads = kMostWarps * cuda::kWarpLanes;
constexpr int kPadding = 8;  // elements between rows in shared memory, which place neighbouring rows in different banks

// The number of blocks of kMmaThreads threads for which a multiprocessor must have registers.
template <int D>
constexpr int kBlocks = D > 64 ? 2 : 3;

// A warp's tile of products (16, Columns). The columns are rows of the other side: 32 in the forward pass, and 16 in
// the backward pass, which needs more registers.
template <int Columns>
using WarpTile = cuda::Sum[Columns / 8];

// A warp's sums of weighted rows (16, D). D: the columns of a head in shared memory. The head has fewer or as many; the
// other columns are zero.
template <int D>
using WarpSums = cuda::Sum[D / 8];

template <class Half, int D>
using HeadMatrix = cuda::SharedMatrix<Half, D + kPadding>;

// With many columns in shared memory, products skip steps of 16 columns that the head does not have.
template <int D>
__device__ bool has_columns(int64_t size, int first) {
  return D <= 64 || first < size;
}

// product (16, 8 N) = rows [row, row + 16) of a times the transpose of rows [other, other + 8 N) of b.
template <class Half, int D, int N>
__device__ void multiply_rows(const HeadMatrix<Half, D>& a, int row, const HeadMatrix<Half, D>& b, int other,
                              int64_t size, cuda::Sum (&product)[N]) {
  LMX_UNROLL
  for (int e = 0; e < 4 * N; ++e) product[e / 4][e % 4] = 0;
  LMX_UNROLL
  for (int k = 0; k < D; k += 16) {
    if (!has_columns<D>(size, k)) continue;
    const cuda::Left left = a.left(row, k);
    LMX_UNROLL
    for (int n = 0; n < N; n += 2) {
      cuda::Right right[2];
      b.transposed(other + 8 * n, k, right);
      cuda::multiply_add<Half>(left, right[0], product[n]);
      cuda::multiply_add<Half>(left, right[1], product[n + 1]);
    }
  }
}

// sum (16, D) += weights (16, 16) times rows [other, other + 16) of b.
template <class Half, int D>
__device__ void add_weighted_rows(const cuda::Left& weights, const HeadMatrix<Half, D>& b, int other, int64_t size,
                                  WarpSums<D>& sum) {
  LMX_UNROLL
  for (int n = 0; n < D; n += 16) {
    if (!has_columns<D>(size, n)) continue;
    cuda::Right right[2];
    b.right(other, n, right);
    cuda::multiply_add<Half>(weights, right[0], sum[n / 8]);
    cuda::multiply_add<Half>(weights, right[1], sum[n / 8 + 1]);
  }
}
// sum (16, D) += weights (16, 8 N), rounded to 16 bits, times rows [other, other + 8 N) of b.
template <class Half, int D, int N>
__device__ void add_weighted_rows(const cuda::Sum (&weights)[N], const HeadMatrix<Half, D>& b, int other, int64_t size,
                                  WarpSums<D>& sum) {
  LMX_UNROLL
  for (int k = 0; k < N; k += 2)
    add_weighted_rows<Half, D>(cuda::left_of<Half>(weights[k], weights[k + 1]), b, other + 8 * k, size, sum);
}

// Eight elements of 16 bits that one instruction moves.
template <class Half>
struct alignas(16) Eight {
  Half v[8];
};
// The first `count` of eight elements, and zeros. Vectors: `from` is 16-byte aligned and count a multiple of 8.
template <bool Vectors, class Half>
__device__ Eight<Half> load_eight(const Half* from, int count) {
  Eight<Half> x{};
  if constexpr (Vectors) {
    if (count > 0) x = *reinterpret_cast<const Eight<Half>*>(from);
  } else {
    LMX_UNROLL
    for (int e = 0; e < 8; ++e)
      if (e < count) x.v[e] = from[e];
  }
  return x;
}
// Adds the first `count` of eight elements of a bias, and rounds. Vectors: as above.
template <bool Vectors, class Half>
__device__ void add_to_eight(Eight<Half>& x, const float* bias, int count) {
  uint32_t pairs[4];
  LMX_UNROLL
  for (int e = 0; e < 8; e += cuda::kQuad) {
    float add[cuda::kQuad]{};
    if constexpr (Vectors) {
      cuda::elements_at(bias + e, add);
    } else {
      LMX_UNROLL
      for (int i = 0; i < cuda::kQuad; ++i)
        if (e + i < count) add[i] = bias[e + i];
    }
    LMX_UNROLL
    for (int i = 0; i < cuda::kQuad; i += 2)
      pairs[(e + i) / 2] =
          cuda::pack<Half>(static_cast<float>(x.v[e + i]) + add[i], static_cast<float>(x.v[e + i + 1]) + add[i + 1]);
  }
  memcpy(x.v, pairs, sizeof pairs);
}

// REQUIRES: the number of threads is a multiple of D / 8. A thread has the same columns in each pass.
template <class Half, int D, int Passes, bool Vectors>
__device__ void stage_rows_by(const HeadRows<Half>& from, int row, int rows, const HeadMatrix<Half, D>& to) {
  constexpr int kPieces = D / 8;
  const int thread = static_cast<int>(threadIdx.x), step = static_cast<int>(blockDim.x) / kPieces;
  const int c = thread % kPieces * 8, columns = static_cast<int>(from.size) - c;
  const int existing = from.rows - row < rows ? static_cast<int>(from.rows) - row : rows;
  const Half* at = from.data + (row + thread / kPieces) * from.stride + c;
  LMX_UNROLL_BY(1)
  for (int r = thread / kPieces; r < rows; r += Passes * step) {
    Eight<Half> x[Passes];
    LMX_UNROLL
    for (int p = 0; p < Passes; ++p) {
      x[p] = load_eight<Vectors>(at, r + p * step < existing ? columns : 0);
      at += step * from.stride;
    }
    LMX_UNROLL
    for (int p = 0; p < Passes; ++p) {
      if (r + p * step >= rows) continue;
      if (from.bias && r + p * step < existing && columns > 0)
        add_to_eight<Vectors>(x[p], from.bias + from.column + c, columns);
      *reinterpret_cast<Eight<Half>*>(to.at(r + p * step, c)) = x[p];
    }
  }
}

// to (rows, D) = rows [row, row + rows), plus the bias, with zeros beyond the last row and column. A thread has the
// loads of `Passes` passes on their way at once, because a block of few threads waits for little else.
template <class Half, int D, int Passes = (D > 64 ? 1 : 4)>
__device__ void stage_rows(const HeadRows<Half>& from, int row, int rows, const HeadMatrix<Half, D>& to) {
  const bool aligned = reinterpret_cast<uintptr_t>(from.data) % sizeof(Eight<Half>) == 0;
  if (from.size % 8 == 0 && from.stride % 8 == 0 && aligned && cuda::aligned_quads(from.bias))
    stage_rows_by<Half, D, Passes, true>(from, row, rows, to);
  else
    stage_rows_by<Half, D, 1, false>(from, row, rows, to);
}

// The shared memory of a block whose tile has `rows` rows: Own operands with these rows, two with the rows of the other
// side, the masks of dropout, and two numbers for each row of the other side. At most 36 KB.
template <class Half, int D, int Own>
struct BlockMemory {
  HeadMatrix<Half, D> own[Own], other[2];
  DropTile dropped;
  float *lse, *delta;

  LMX_HD static constexpr size_t matrix_bytes(int rows) {
    return sizeof(Half) * static_cast<size_t>(rows * (D + kPadding));
  }
  LMX_HD static constexpr size_t drop_bytes(int rows) {
    return static_cast<size_t>(DropTile::kEntries * (rows > kOtherRows ? rows : kOtherRows));
  }
  LMX_HD static constexpr size_t bytes(int rows) {
    return Own * matrix_bytes(rows) + 2 * matrix_bytes(kOtherRows) + drop_bytes(rows) + 2 * kOtherRows * sizeof(float);
  }

  __device__ explicit BlockMemory(int rows) {
    unsigned char* at = cuda::shared<unsigned char>();
    for (HeadMatrix<Half, D>& m : own) {
      m.data = reinterpret_cast<Half*>(at);
      at += matrix_bytes(rows);
    }
    for (HeadMatrix<Half, D>& m : other) {
      m.data = reinterpret_cast<Half*>(at);
      at += matrix_bytes(kOtherRows);
    }
    dropped.entries = at;
    lse = reinterpret_cast<float*>(at + drop_bytes(rows));
    delta = lse + kOtherRows;
  }
};

// The rows of a thread's block and warp.
struct WarpPlace {
  int rows = static_cast<int>(blockDim.x) / cuda::kWarpLanes * kWarpRows;  // of the block's tile
  int row = static_cast<int>(threadIdx.x) / cuda::kWarpLanes * kWarpRows;  // the warp's first
};

// Passes over the keys that the queries [first, first + place.rows) of a block see, in tiles of 32, whose keys and
// values are staged in memory.other, and the masks of dropout in memory.dropped. Each warp that sees keys of a tile
// calls use(key, seen): the first key of the tile, and the end of the keys that the warp sees.
template <class Half, int D, int Own, class Use>
__device__ void over_keys(const Pair<float, Half>& pair, const WarpPlace& place, int first,
                          const BlockMemory<Half, D, Own>& memory, Use use) {
  const int query = first + place.row, end = static_cast<int>(pair.seen(first + place.rows));
  const int seen = query < pair.q.rows ? static_cast<int>(pair.seen(query + kWarpRows)) : 0;
  for (int key = 0; key < end; key += kOtherRows) {
    __syncthreads();  // the tile before this one may still be read
    stage_rows<Half, D>(pair.k, key, kOtherRows, memory.other[0]);
    stage_rows<Half, D>(pair.v, key, kOtherRows, memory.other[1]);
    if (key % kMaskColumns == 0) memory.dropped.stage(pair, first, place.rows, key / kMaskColumns);
    __syncthreads();
    if (key < seen) use(key, seen);
  }
}

// Writes the first `count` of four neighbouring elements, or adds them. All: all four, by one store each to the matrix
// and to the operand, which has the type Half.
template <class Half, bool All>
__device__ void put_four(const TileTarget<float>& to, int64_t at, const cuda::Quad<float>& x, int count) {
  if constexpr (All) {
    cuda::Quad<float> sum = x;
    if (to.add) {
      const cuda::Quad<float> earlier = cuda::quad_at(to.data + at);
      LMX_UNROLL
      for (int e = 0; e < cuda::kQuad; ++e) sum.v[e] += earlier.v[e];
    }
    if (to.data) cuda::put_quad(to.data + at, sum);
    if (!to.operand.to) return;
    auto* operand = reinterpret_cast<uint2*>(static_cast<Half*>(to.operand.to) + to.first + at);
    *operand = {cuda::pack<Half>(sum.v[0], sum.v[1]), cuda::pack<Half>(sum.v[2], sum.v[3])};
  } else {
    LMX_UNROLL
    for (int e = 0; e < cuda::kQuad; ++e) {
      if (e >= count) return;
      const float sum = to.add ? to.data[at + e] + x.v[e] : x.v[e];
      if (to.data) to.data[at + e] = sum;
      if (to.operand.to) to.operand.store(to.first + at + e, sum);
    }
  }
}

// Writes the rows of `from` (rows, D), whose rows are D + kPadding elements apart, to rows [row, row + rows) of the
// matrix, as far as it has them. Every lane of a warp calls this.
template <class Half, int D, bool All>
__device__ void put_rows_by(const float* from, int rows, const TileTarget<float>& to, int64_t row) {
  constexpr int kPieces = D / cuda::kQuad, kStep = cuda::kWarpLanes / kPieces;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpLanes, c = lane % kPieces * cuda::kQuad;
  const int columns = static_cast<int>(to.size) - c;
  int64_t at = (row + lane / kPieces) * to.stride + c;
  LMX_UNROLL_BY(All ? 4 : 1)
  for (int r = lane / kPieces; r < rows; r += kStep, at += kStep * to.stride)
    if (row + r < to.rows && columns > 0)
      put_four<Half, All>(to, at, cuda::quad_at(from + r * (D + kPadding) + c), columns);
}

// Writes a warp's sums to rows [row, row + 16), as far as the matrix has them. `scratch`: 16 rows in shared memory that
// no other warp uses any more, in which lanes exchange their sums, so that each writes neighbouring elements.
template <class Half, int D>
__device__ void put_rows(const WarpSums<D>& sums, Half* scratch, const TileTarget<float>& to, int64_t row) {
  constexpr int kRows = kWarpRows * sizeof(Half) / sizeof(float);  // of f32 in the scratch memory
  auto* memory = reinterpret_cast<float*>(scratch);
  const bool quads = to.size % cuda::kQuad == 0 && to.stride % cuda::kQuad == 0 && to.first % cuda::kQuad == 0 &&
                     cuda::aligned_quads(to.data) && cuda::aligned_quads(to.operand) &&
                     (!to.operand.to || to.operand.type == dtype_of<Half>);
  LMX_UNROLL
  for (int begin = 0; begin < kWarpRows; begin += kRows) {
    __syncwarp();  // the memory may still be read
    LMX_UNROLL
    for (int n = 0; n < D / 8; ++n) {
      float* pair = memory + cuda::sum_row(0) * (D + kPadding) + 8 * n + cuda::sum_column(0);
      *reinterpret_cast<float2*>(pair) = {sums[n][begin / 4], sums[n][begin / 4 + 1]};
    }
    __syncwarp();
    if (quads)
      put_rows_by<Half, D, true>(memory, kRows, to, row + begin);
    else
      put_rows_by<Half, D, false>(memory, kRows, to, row + begin);
  }
}

// The number of warps of a block if the longest sequence has `longest` rows on its side. A block that needs few rows
// does not keep idle warps; long sequences are read by half as many blocks.
template <int D>
int warps_for(int64_t longest) {
  if (longest <= kWarpRows) return 1;
  return longest <= 4 * kWarpRows || D > 64 ? 2 : kMostWarps;
}

// Calls run(columns) with std::integral_constant<int, D> for the smallest D that fits.
template <class Run>
void with_columns(const AttentionPlan& plan, Run run) {
  if (plan.size <= 32) return run(std::integral_constant<int, 32>());
  if (plan.size <= 64) return run(std::integral_constant<int, 64>());
  return run(std::integral_constant<int, 128>());
}

// The tiles of one side: pairs of a sequence and a head, and the rows of the longest sequence.
struct MmaTiles {
  int64_t pairs, longest;
};

// Starts a kernel with a block for each tile. `Own`: see BlockMemory.
template <class Half, int D, int Own, class... Args, class... Given>
void launch_mma(Context& ctx, const char* name, const MmaTiles& all, void (*kernel)(Args...), const Given&... given) {
  const int warps = warps_for<D>(all.longest), rows = warps * kWarpRows;
  const int64_t blocks = all.pairs * tiles(all.longest, rows);
  if (blocks == 0) return;
  const size_t shared = BlockMemory<Half, D, Own>::bytes(rows);
  const cuda::Grid grid{cuda::blocks_of(blocks), static_cast<unsigned>(warps * cuda::kWarpLanes), shared};
  cuda::launch(ctx, name, grid, kernel, given...);
}

}  // namespace lmx::ops
