// Broadcasting: the common shape of several operands, loops over operands of which some repeat, and the sums that
// reduce a gradient to the shape of an operand.
#pragma once

#include <array>
#include <cstdint>

#include "lmx/math.h"
#include "ops/common.h"

namespace lmx::ops {

// Returns `dim` counted from 0. UserError if `shape` has no such dimension.
int dimension(const char* op, int dim, const Shape& shape);

// x as (outer, size, inner) around one dimension.
struct Around {
  int64_t outer = 1, size = 1, inner = 1;
};
Around around(const Shape& shape, int dim);

// The shape to which a and b broadcast. UserError `[op] a (2, 3) and b (4): ...` if they do not.
Shape broadcast_shape(const char* op, const char* name_a, const Shape& a, const char* name_b, const Shape& b);

// The positions of the elements of N operands in the order of a result. Neighbouring dimensions are merged if every
// operand allows it. Strides count elements; a stride is 0 if the operand repeats. Kernels take it by value.
template <size_t N>
struct Walk {
  int rank = 0;
  int64_t size[Shape::kMaxRank] = {};
  int64_t stride[N][Shape::kMaxRank] = {};

  void add(int64_t n, const std::array<int64_t, N>& strides) {
    if (n == 1 && rank > 0) return;
    bool merges = rank > 0;
    const int last = rank > 0 ? rank - 1 : 0;
    for (size_t o = 0; o < N; ++o) merges = merges && stride[o][last] == strides[o] * n;
    if (rank == 1 && size[0] == 1) merges = true;  // a leading dimension of size 1 needs no stride
    const int at = merges ? last : rank++;
    size[at] = merges ? size[at] * n : n;
    for (size_t o = 0; o < N; ++o) stride[o][at] = strides[o];
  }
  // The stride of an operand in the last dimension.
  LMX_HD int64_t step(int operand) const { return stride[operand][rank - 1]; }
};

// The stride of each dimension of `result` in an operand of shape `own` that broadcasts to it.
std::array<int64_t, Shape::kMaxRank> broadcast_strides(const Shape& own, const Shape& result);

template <size_t N>
Walk<N> walk_of(const Shape& result, const std::array<const Shape*, N>& operands) {
  std::array<std::array<int64_t, Shape::kMaxRank>, N> strides;
  for (size_t o = 0; o < N; ++o) strides[o] = broadcast_strides(*operands[o], result);
  Walk<N> walk;
  walk.add(1, {});
  for (int d = 0; d < result.rank(); ++d) {
    std::array<int64_t, N> of_dim;
    for (size_t o = 0; o < N; ++o) of_dim[o] = strides[o][static_cast<size_t>(d)];
    walk.add(result[d], of_dim);
  }
  return walk;
}

// Calls row(at, offsets, n) for runs of elements [at, at + n) of the result within [begin, end). The elements of
// operand o start at offsets[o], with stride walk.step(o).
template <size_t N, class Row>
void for_runs(const Walk<N>& walk, int64_t begin, int64_t end, Row&& row) {
  const int last = walk.rank - 1;
  int64_t index[Shape::kMaxRank] = {};
  std::array<int64_t, N> offsets{};
  int64_t rest = begin;
  for (int d = last; d >= 0; --d) {
    index[d] = rest % walk.size[d];
    rest /= walk.size[d];
    for (size_t o = 0; o < N; ++o) offsets[o] += index[d] * walk.stride[o][d];
  }
  for (int64_t at = begin; at < end;) {
    const int64_t n = std::min(walk.size[last] - index[last], end - at);
    row(at, offsets, n);
    at += n;
    for (size_t o = 0; o < N; ++o) offsets[o] -= index[last] * walk.stride[o][last];
    index[last] = 0;
    for (int d = last - 1; d >= 0; --d) {  // the next index of the dimensions before the last one
      for (size_t o = 0; o < N; ++o) offsets[o] += walk.stride[o][d];
      if (++index[d] < walk.size[d]) break;
      for (size_t o = 0; o < N; ++o) offsets[o] -= walk.size[d] * walk.stride[o][d];
      index[d] = 0;
    }
  }
}

// y = the elements of x at the positions of the walk.
template <class T>
struct CopyWalk {
  static constexpr const char* kName = "copy";
  const T* x;
  T* y;  // (n)
  Walk<1> walk;
  int64_t n;
};

// Sums over the last dimension, times the factor, accumulated in double.
template <class T>
struct SumRows {
  static constexpr const char* kName = "sum";
  const T* x;  // (rows, n)
  T* y;        // (rows)
  int64_t rows, n;
  double factor;
};

// Sums over the middle dimension.
template <class T>
struct SumColumns {
  static constexpr const char* kName = "sum";
  const T* x;  // (outer, size, inner)
  T* y;        // (outer, inner)
  int64_t outer, size, inner;
  double factor;
};

// The elements of x at the positions of `walk`, as a tensor of `shape`.
Tensor copied(Context& ctx, const char* op, const Tensor& x, const Walk<1>& walk, const Shape& shape);
// x repeated to `shape`.
Tensor repeated(Context& ctx, const Tensor& x, const Shape& shape);
// factor * sums over the middle of (outer, size, inner). Sums are in double, in an order that does not depend on the
// number of threads. The result has `shape`.
Tensor sum_middle(Context& ctx, const Tensor& x, const Around& a, const Shape& shape, double factor = 1);
// Reduces a gradient of a broadcast result to that of an operand of `shape`: sums it where the operand repeats. Returns
// `t` itself if nothing repeats.
Tensor reduce_to(Context& ctx, const Tensor& t, const Shape& shape);

}  // namespace lmx::ops
