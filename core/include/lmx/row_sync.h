// Rows that ranks have in common: the pieces of which strategies for row-sparse gradients are made (Patwary 2018,
// section III-A).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/comm.h"

namespace lmx {

// Elements of a row of (n, ...); 1 for a vector.
LMX_API int64_t row_width(const Shape& shape);
// Rows of each rank where they are divided evenly (chunk_begin).
LMX_API std::vector<int64_t> even_shares(int64_t rows, int ranks);

// The gradient of a table with `vocabulary` rows as one piece, repetitions kept: none where it is empty, all rows where
// it is dense. Leaves the gradient as it is.
LMX_API RowSparse rows_of(Context& ctx, const Gradient& grad, const Tensor& table);
// The gradient as one dense tensor in the shape of `table`: zeros where it is empty, rows added in order of appearance.
LMX_API Tensor dense_of(Context& ctx, const Gradient& grad, const Tensor& table);

// All ranks' indices, rank after rank.
struct GatheredIndices {
  Tensor all;                   // i32 (sum of counts)
  std::vector<int64_t> counts;  // by rank
};
// Sends 8 bytes and then 4 an index to each other rank.
LMX_API GatheredIndices gather_indices(Context& ctx, std::span<const int32_t> own, const std::string& group);
// The rows that any rank has, ascending: the same on every rank. InternalError: an index outside [0, vocabulary).
LMX_API std::vector<int32_t> union_of(Context& ctx, const GatheredIndices& gathered, int64_t vocabulary);
// (U, D): row i is own's row of index[i], or +0 where own has none. REQUIRES: `own` is unique and within `index`, which
// ascends.
LMX_API Tensor spread_rows(Context& ctx, const RowSparse& own, std::span<const int32_t> index);
// Those rows of `own` that `index` names too, packed. REQUIRES: `own` is unique; `index` ascends.
LMX_API RowSparse pack_rows(Context& ctx, const RowSparse& own, std::span<const int32_t> index);

}  // namespace lmx
