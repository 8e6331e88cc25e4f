// Partition of a block among ranks. Each rank sums one part.
//
// A codec that stores means of columns stores them once for each part. Therefore parts are columns if possible: a
// matrix (512, 2048) on 192 ranks then needs 1.13 bits an entry, but 25 bits if each rank has three rows. Vectors, and
// blocks with fewer columns than ranks, are divided by rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace lmx::comm {

// The number of rows of this width that have about `values` values; at least one.
inline int64_t rows_holding(int64_t values, int64_t width) {
  return std::max<int64_t>(1, values / std::max<int64_t>(width, 1));
}

// Rows [row, row + rows) and columns [column, column + columns) of a block.
struct Part {
  int64_t row = 0, rows = 0, column = 0, columns = 0;
};

// Part of rank r in a block with all its rows. Divides by rows or by columns: the division for which the largest part,
// with one bit for each entry and two floats for each column, is smaller.
Part part_of(int64_t rows, int64_t width, int r, int ranks);

// Partition of a row-sparse table. Active rows change each step, and a row must keep its owner, so the partition
// depends on the width only. Returns true if ranks own columns, false if rank r owns the rows whose index is r modulo
// the number of ranks.
bool table_by_columns(int64_t width, int ranks);
// The columns of rank r, for all rows.
Part table_part(int64_t rows, int64_t width, int r, int ranks);

// Rows of a table in the order in which they are sent.
struct RowOrder {
  std::vector<int32_t> places;  // for each row in this order: its position among the given rows
  std::vector<Part> parts;      // by rank, in this order
};
RowOrder order_rows(std::span<const int32_t> index, int64_t width, int ranks);

}  // namespace lmx::comm
