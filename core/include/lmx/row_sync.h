// Functions on the rows of ranks, of which strategies for row-sparse gradients are composed (Patwary 2018, section
// III-A).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/comm.h"

namespace lmx {

// Number of elements of a row of (n, ...); 1 for a vector.
LMX_API int64_t row_width(const Shape& shape);

// The gradient of a table with `vocabulary` rows as one piece; repeated rows stay. An empty gradient has no rows, a
// dense one all rows. The gradient itself is not changed.
LMX_API RowSparse rows_of(Context& ctx, const Gradient& grad, const Tensor& table);
// The gradient as one dense tensor in the shape of `table`: zeros if it is empty; rows are added in order of
// appearance.
LMX_API Tensor dense_of(Context& ctx, const Gradient& grad, const Tensor& table);

// The indices of all ranks, in rank order.
struct GatheredIndices {
  Tensor all;                   // i32 (sum of counts)
  std::vector<int64_t> counts;  // by rank
};
// Sends 8 bytes, and then 4 for each index, to each other rank.
LMX_API GatheredIndices gather_indices(Context& ctx, std::span<const int32_t> own, const std::string& group);
// The rows of any rank, ascending: the same result on every rank. InternalError: an index outside [0, vocabulary).
LMX_API std::vector<int32_t> union_of(Context& ctx, const GatheredIndices& gathered, int64_t vocabulary);
// (U, D): row i is own's row of index[i], or +0 if `own` does not have it. REQUIRES: `own` is unique and its rows are
// in `index`, which ascends.
LMX_API Tensor spread_rows(Context& ctx, const RowSparse& own, std::span<const int32_t> index);
// The rows of `own` that are also in `index`. REQUIRES: `own` is unique; `index` ascends.
LMX_API RowSparse pack_rows(Context& ctx, const RowSparse& own, std::span<const int32_t> index);

}  // namespace lmx
