// Tiles of attention on tensor cores. A block has a tile of 16 rows for each of its 1, 2 or 4 warps, and passes over
// the rows of the other side (keys for a tile of queries, queries for a tile of keys) in tiles of 32. The operands of a
// block are in shared memory, rounded to 16 bits; products stay in registers, and are rounded there to become the left
// side of the next product.
#pragma once

#include <type_traits>

#include "backend/cuda/mma.cuh"
#include "backend/cuda/reduce.cuh"
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

// sum (16, D) += weights (16, 8 N), rounded to 16 bits, times rows [other, other + 8 N) of b.
template <class Half, int D, int N>
__device__ void add_weighted_rows(const cuda::Sum (&weights)[N], const HeadMatrix<Half, D>& b, int other, int64_t size,
                                  WarpSums<D>& sum) {
  LMX_UNROLL
  for (int k = 0; k < N; k += 2) {
    const cuda::Left left = cuda::left_of<Half>(weights[k], weights[k + 1]);
    LMX_UNROLL
    for (int n = 0; n < D; n += 16) {
      if (!has_columns<D>(size, n)) continue;
      cuda::Right right[2];
      b.right(other + 8 * k, n, right);
      cuda::multiply_add<Half>(left, right[0], sum[n / 8]);
      cuda::multiply_add<Half>(left, right[1], sum[n / 8 + 1]);
    }
  }
}

// The first `count` of eight elements, and zeros. Vectors: `from` is 16-byte aligned and count a multiple of 4.
template <bool Vectors>
__device__ void load_eight(const float* from, int64_t count, float (&to)[8]) {
  if constexpr (Vectors) {
    LMX_UNROLL
    for (int half = 0; half < 8; half += 4) {
      const float4 x = half < count ? __ldg(reinterpret_cast<const float4*>(from + half)) : float4{0, 0, 0, 0};
      to[half] = x.x;
      to[half + 1] = x.y;
      to[half + 2] = x.z;
      to[half + 3] = x.w;
    }
  } else {
    LMX_UNROLL
    for (int e = 0; e < 8; ++e) to[e] = e < count ? __ldg(from + e) : 0.0f;
  }
}

template <class Half, int D, int Passes, bool Vectors>
__device__ void stage_rows_by(const HeadRows<float>& from, int row, int rows, const HeadMatrix<Half, D>& to) {
  constexpr int kPieces = D / 8;
  const int threads = static_cast<int>(blockDim.x), pieces = rows * kPieces;
  LMX_UNROLL_BY(1)
  for (int begin = static_cast<int>(threadIdx.x); begin < pieces; begin += Passes * threads) {
    float x[Passes][8];
    LMX_UNROLL
    for (int p = 0; p < Passes; ++p) {
      const int t = begin + p * threads, r = t / kPieces, c = t % kPieces * 8;
      const int64_t count = t < pieces && row + r < from.rows ? from.size - c : 0;
      load_eight<Vectors>(from.data + (row + r) * from.stride + c, count, x[p]);
    }
    LMX_UNROLL
    for (int p = 0; p < Passes; ++p) {
      const int t = begin + p * threads;
      if (t >= pieces) continue;
      *reinterpret_cast<uint4*>(to.at(t / kPieces, t % kPieces * 8)) = {
          cuda::pack<Half>(x[p][0], x[p][1]), cuda::pack<Half>(x[p][2], x[p][3]), cuda::pack<Half>(x[p][4], x[p][5]),
          cuda::pack<Half>(x[p][6], x[p][7])};
    }
  }
}

// to (rows, D) = rows [row, row + rows), rounded to 16 bits, with zeros beyond the last row and column. A thread has
// the loads of `Passes` passes on their way at once, because a block of few threads waits for little else.
template <class Half, int D, int Passes = (D > 64 ? 1 : 4)>
__device__ void stage_rows(const HeadRows<float>& from, int row, int rows, const HeadMatrix<Half, D>& to) {
  if (from.size % 4 == 0 && from.stride % 4 == 0 && reinterpret_cast<uintptr_t>(from.data) % sizeof(float4) == 0)
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
__device__ void over_keys(const Pair<float>& pair, const WarpPlace& place, int first,
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

// Writes one element, or adds it.
__device__ inline void put_one(const TileTarget<float>& to, int64_t at, float x) {
  const float value = to.add ? to.data[at] + x : x;
  to.data[at] = value;
  if (to.operand.to) to.operand.store(to.first + at, value);
}
// Two elements by one store. `operand_pairs`: the operand is of type Half, and aligned for the same.
template <class Half>
__device__ void put_pair(const TileTarget<float>& to, int64_t at, float x, float next, bool operand_pairs) {
  float2& target = *reinterpret_cast<float2*>(to.data + at);
  float2 value{x, next};
  if (to.add) {
    value.x += target.x;
    value.y += target.y;
  }
  target = value;
  if (!to.operand.to) return;
  if (operand_pairs) {
    auto* operand = reinterpret_cast<uint32_t*>(static_cast<Half*>(to.operand.to) + to.first + at);
    *operand = cuda::pack<Half>(value.x, value.y);
  } else {
    to.operand.store(to.first + at, value.x);
    to.operand.store(to.first + at + 1, value.y);
  }
}

// Writes a warp's sums to rows [row, row + 16), as far as the matrix has them.
template <class Half, int D>
__device__ void put_rows(const WarpSums<D>& sums, const TileTarget<float>& to, int64_t row) {
  const OperandTarget& operand = to.operand;
  const bool pairs =
      to.size % 2 == 0 && to.stride % 2 == 0 && reinterpret_cast<uintptr_t>(to.data) % sizeof(float2) == 0;
  const bool operand_pairs = pairs && operand.type == dtype_of<Half> && to.first % 2 == 0 &&
                             reinterpret_cast<uintptr_t>(operand.to) % sizeof(uint32_t) == 0;
  LMX_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int64_t i = row + cuda::sum_row(2 * half);
    if (i >= to.rows) continue;
    LMX_UNROLL
    for (int n = 0; n < D / 8; ++n) {
      const int64_t c = 8 * n + cuda::sum_column(0), at = i * to.stride + c;
      if (c >= to.size) continue;
      const float x = sums[n][2 * half], next = sums[n][2 * half + 1];
      if (pairs) {
        put_pair<Half>(to, at, x, next, operand_pairs);
      } else {
        put_one(to, at, x);
        if (c + 1 < to.size) put_one(to, at + 1, next);
      }
    }
  }
}

// The number of warps of a block if the longest sequence has `longest` rows on its side. A block that needs few rows
// does not keep idle warps; long sequences are read by half as many blocks.
template <int D>
int warps_for(int64_t longest) {
  if (longest <= kWarpRows) return 1;
  return longest <= 4 * kWarpRows || D > 64 ? 2 : kMostWarps;
}

// Calls run(Half(), columns) with the types of a call: std::integral_constant<int, D> is the smallest that fits.
template <class Run>
void with_mma_types(const AttentionPlan& plan, Run run) {
  const auto sized = [&](auto half) {
    if (plan.size <= 32) return run(half, std::integral_constant<int, 32>());
    if (plan.size <= 64) return run(half, std::integral_constant<int, 64>());
    return run(half, std::integral_constant<int, 128>());
  };
  if (plan.compute == DType::bf16) return sized(bfloat16());
  return sized(float16());
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
