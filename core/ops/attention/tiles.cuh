// Tiles of the products of attention in CUDA kernels. A block has 16 x 8 threads and a tile of 32 rows and 64 columns:
// thread (x, y) has the elements of rows y + 8 r and of columns x + 16 c. So a thread's four columns of weights use the
// four words of one block of random words (see DropMask).
#pragma once

#include "lmx/cuda_launch.cuh"
#include "ops/attention/attention.h"

namespace lmx::ops {

constexpr int kThreadColumns = 16, kThreadRows = 8, kEach = 4, kTileThreads = kThreadColumns * kThreadRows;
constexpr int kTileRows = kThreadRows * kEach, kTileColumns = kThreadColumns * kEach;
constexpr int kDepth = 32;  // elements of a product's inner dimension that are in shared memory at a time
// The distances of rows in shared memory are odd, so that neighbouring rows are in different banks.
constexpr int kOperandStride = kDepth + 1, kWeightStride = kTileColumns + 1;

template <class T>
using Tile = T[kEach][kEach];

__device__ inline int thread_column(int c) {
  return static_cast<int>(threadIdx.x) % kThreadColumns + kThreadColumns * c;
}
__device__ inline int thread_row(int r) {
  return static_cast<int>(threadIdx.x) / kThreadColumns + kThreadRows * r;
}

// The block's shared memory: two operands, and the weights of a tile.
template <class T>
struct TileMemory {
  T *rows = cuda::shared<T>(), *columns = rows + kTileRows * kOperandStride,
    *weights = columns + kTileColumns * kOperandStride;
  static constexpr size_t kBytes =
      sizeof(T) * (kTileRows * kOperandStride + kTileColumns * kOperandStride + kTileRows * kWeightStride);
};

// Rounds in the same way as a matrix product rounds its inputs.
__device__ inline float rounded(float x, DType compute) {
  if (compute == DType::bf16) return static_cast<float>(bfloat16(x));
  if (compute == DType::f16) return static_cast<float>(float16(x));
  return x;
}
__device__ inline double rounded(double x, DType) {
  return x;
}

// The rows of one sequence and the columns of one head.
template <class S>
struct HeadRows {
  const S* data;
  int64_t stride, rows, size;
  DType compute;
  int64_t column = 0;           // of the head in `bias`
  const float* bias = nullptr;  // added to each row; null: none
  // An element as an operand of a product.
  __device__ Computed<S> operand(int64_t row, int64_t c) const {
    auto x = static_cast<Computed<S>>(data[row * stride + c]);
    if constexpr (!std::is_same_v<S, Computed<S>>)
      if (bias) x += bias[column + c];
    return rounded(x, compute);
  }
};

// to (Rows, Columns) = rows [row, ...) and columns [column, ...), with zeros beyond the last.
template <int Rows, int Columns, int Stride, class S>
__device__ void stage(const HeadRows<S>& from, int64_t row, int64_t column, Computed<S>* to) {
  for (int t = static_cast<int>(threadIdx.x); t < Rows * Columns; t += kTileThreads) {
    const int64_t r = row + t / Columns, c = column + t % Columns;
    const bool exists = r < from.rows && c < from.size;
    to[t / Columns * Stride + t % Columns] = exists ? from.operand(r, c) : Computed<S>(0);
  }
}

// product = rows [row, row + 32) of a times the transpose of rows [column, column + 64) of b.
template <class T, class S>
__device__ void multiply_rows(const TileMemory<T>& memory, const HeadRows<S>& a, int64_t row, const HeadRows<S>& b,
                              int64_t column, Tile<T>& product) {
  for (int r = 0; r < kEach; ++r)
    for (int c = 0; c < kEach; ++c) product[r][c] = 0;
  for (int64_t k0 = 0; k0 < a.size; k0 += kDepth) {
    __syncthreads();  // the operands may still be read by the product before this one
    stage<kTileRows, kDepth, kOperandStride>(a, row, k0, memory.rows);
    stage<kTileColumns, kDepth, kOperandStride>(b, column, k0, memory.columns);
    __syncthreads();
    const int depth = a.size - k0 < kDepth ? static_cast<int>(a.size - k0) : kDepth;
    for (int k = 0; k < depth; ++k) {
      T left[kEach], right[kEach];
      for (int r = 0; r < kEach; ++r) left[r] = memory.rows[thread_row(r) * kOperandStride + k];
      for (int c = 0; c < kEach; ++c) right[c] = memory.columns[thread_column(c) * kOperandStride + k];
      for (int r = 0; r < kEach; ++r)
        for (int c = 0; c < kEach; ++c) product[r][c] += left[r] * right[c];
    }
  }
}

// sum += weights (32, 64) times rows [row, row + 64) and columns [column, column + 64) of b.
template <class T, class S>
__device__ void add_weighted_rows(const TileMemory<T>& memory, const Tile<T>& weights, const HeadRows<S>& b,
                                  int64_t row, int64_t column, Tile<T>& sum) {
  __syncthreads();  // the weights may still be read by the product before this one
  for (int r = 0; r < kEach; ++r)
    for (int c = 0; c < kEach; ++c)
      memory.weights[thread_row(r) * kWeightStride + thread_column(c)] = rounded(weights[r][c], b.compute);
  for (int k0 = 0; k0 < kTileColumns && row + k0 < b.rows; k0 += kDepth) {
    if (k0 > 0) __syncthreads();
    stage<kDepth, kTileColumns, kTileColumns>(b, row + k0, column, memory.columns);
    __syncthreads();
    const int depth = b.rows - row - k0 < kDepth ? static_cast<int>(b.rows - row - k0) : kDepth;
    for (int k = 0; k < depth; ++k) {
      T left[kEach], right[kEach];
      for (int r = 0; r < kEach; ++r) left[r] = memory.weights[thread_row(r) * kWeightStride + k0 + k];
      for (int c = 0; c < kEach; ++c) right[c] = memory.columns[k * kTileColumns + thread_column(c)];
      for (int r = 0; r < kEach; ++r)
        for (int c = 0; c < kEach; ++c) sum[r][c] += left[r] * right[c];
    }
  }
}

// A matrix of `rows` by `size` elements to which tiles are written, or added.
template <class T>
struct TileTarget {
  T* data;  // null: only the operand is written, by attention on tensor cores
  int64_t stride, rows, size;
  bool add;
  OperandTarget operand = {};
  int64_t first = 0;  // the position of data[0] in the operand
};

// Writes a tile to rows [row, row + 32) and columns [column, column + 64), as far as the matrix has them.
template <class T>
__device__ void put(const Tile<T>& tile, const TileTarget<T>& to, int64_t row, int64_t column) {
  for (int r = 0; r < kEach; ++r) {
    for (int c = 0; c < kEach; ++c) {
      const int64_t i = row + thread_row(r), j = column + thread_column(c);
      if (i >= to.rows || j >= to.size) continue;
      T& element = to.data[i * to.stride + j];
      const T value = (to.add ? element : T(0)) + tile[r][c];
      element = value;
      if (to.operand.to) to.operand.store(to.first + i * to.stride + j, value);
    }
  }
}

// The rows of a sequence and the columns of head `head`, which `of` has, in a gradient. `first_row`: the sequence's.
template <class T, class S>
__device__ TileTarget<T> gradient_of(const AttentionGradient<T>& all, const HeadRows<S>& of, int64_t first_row,
                                     int64_t head) {
  const int64_t at = first_row * all.to.stride + head * of.size;
  T* const data = all.to.data ? all.to.data + at : nullptr;
  return {data, all.to.stride, of.rows, of.size, all.add, all.operand, all.column + at};
}

// How many tiles of `size` rows cover n rows.
LMX_HD constexpr int64_t tiles(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}

// One head of queries of one sequence, and the head of keys that it uses.
template <class T, class S = T>
struct Pair {
  const AttentionInput<T, S>& in;
  int64_t sequence, head, query, key;  // `query`, `key`: the first rows
  HeadRows<S> q, k, v;
  T scale;

  __device__ Pair(const AttentionInput<T, S>& input, int64_t b, int64_t h)
      : in(input), sequence(b), head(h), query(input.query_begin[b]), key(input.key_begin[b]) {
    const int64_t kv = h / in.plan.group();
    q = rows_of(in.q, in.q_bias, query, in.query_begin[b + 1], h);
    k = rows_of(in.k, in.k_bias, key, in.key_begin[b + 1], kv);
    v = rows_of(in.v, in.v_bias, key, in.key_begin[b + 1], kv);
    scale = static_cast<T>(in.plan.scale);
  }
  __device__ HeadRows<S> rows_of(const HeadColumns<const S>& all, const float* bias, int64_t begin, int64_t end,
                                 int64_t h) const {
    const AttentionPlan& plan = in.plan;
    const int64_t column = h * plan.size;
    return {all.data + begin * all.stride + column, all.stride, end - begin, plan.size, plan.compute, column, bias};
  }
  __device__ HeadRows<S> output_rows(const S* y) const {  // of y or dy
    return rows_of({y, in.plan.heads * in.plan.size}, nullptr, query, query + q.rows, head);
  }
  __device__ bool sees(int64_t i, int64_t j) const { return i < q.rows && j < k.rows && (!in.plan.causal || j <= i); }
  // The end of the keys that queries before `end` see.
  __device__ int64_t seen(int64_t end) const { return in.plan.causal && end < k.rows ? end : k.rows; }
  __device__ T score(T product, int64_t i, int64_t j) const {
    return in.bias ? scale * product + in.bias[in.plan.bias.at(sequence, head, i) + j] : scale * product;
  }
  __device__ int64_t lse_at(int64_t i) const { return (query + i) * in.plan.heads + head; }
  // The random words of query i and keys 64 g + l, l + 16, l + 32, l + 48: `block` is 16 g + l.
  __device__ MaskWords words(int64_t i, int64_t block) const {
    return mask_words(in.masks[head].key, in.row_ids[query + i], static_cast<uint32_t>(block));
  }
  __device__ T factor(uint32_t word) const {
    return mask_factor(word, in.masks[head].threshold, static_cast<T>(in.masks[head].keep_scale));
  }
  // The factors of the weights of query i and of the thread's keys, in a tile whose columns are keys from `first` on,
  // a multiple of 64.
  __device__ void drop_columns(int64_t i, int64_t first, T (&factors)[kEach]) const {
    for (T& f : factors) f = 1;
    if (!in.masks || i >= q.rows) return;
    const MaskWords w = words(i, first / 4 + thread_column(0));
    for (int c = 0; c < kEach; ++c) factors[c] = factor(w.word[c]);
  }
  // The same in a tile whose rows are keys from `first` on, a multiple of 32: rows y + 8 r and y + 8 (r + 2) share
  // their words.
  __device__ void drop_rows(int64_t i, int64_t first, T (&factors)[kEach]) const {
    for (T& f : factors) f = 1;
    if (!in.masks || i >= q.rows) return;
    const bool upper = first % kMaskColumns != 0;
    for (int r = 0; r < 2; ++r) {
      const MaskWords w = words(i, first / kMaskColumns * 16 + thread_row(r));
      factors[r] = factor(upper ? w.word[2] : w.word[0]);
      factors[r + 2] = factor(upper ? w.word[3] : w.word[1]);
    }
  }
};

// The part of a block: number `tile` of `tiles` tiles of a head of a sequence, and the first of its columns.
struct Part {
  int64_t sequence, head, tile, column;
  __device__ Part(int64_t heads, int64_t tile_count, int64_t size) {
    const int64_t columns = tiles(size, kTileColumns);
    int64_t i = blockIdx.x;
    column = i % columns * kTileColumns;
    tile = (i /= columns) % tile_count;
    head = (i /= tile_count) % heads;
    sequence = i / heads;
  }
};

}  // namespace lmx::ops
