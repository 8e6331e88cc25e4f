#include "comm/partition.h"

#include <algorithm>
#include <numeric>

#include "lmx/comm.h"
#include "lmx/parallel.h"

namespace lmx::comm {
namespace {

constexpr int64_t kMeans = 64;       // bits of the two means of a column
constexpr int64_t kGrain = 1 << 14;  // smallest number of values for a thread

int64_t largest_chunk(int64_t n, int parts) {
  return (n + parts - 1) / parts;
}

Part columns_of(int64_t rows, int64_t width, int r, int ranks) {
  const int64_t first = chunk_begin(width, r, ranks);
  return {0, rows, first, chunk_begin(width, r + 1, ranks) - first};
}

template <class Row>
void each_row(const Part& part, Row&& row) {
  parallel_for(part.rows, rows_holding(kGrain, part.columns), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) row(i);
  });
}

}  // namespace

Part part_of(int64_t rows, int64_t width, int r, int ranks) {
  const int64_t between_rows = (kMeans + largest_chunk(rows, ranks)) * width,
                between_columns = (kMeans + rows) * largest_chunk(width, ranks);
  if (between_columns < between_rows) return columns_of(rows, width, r, ranks);
  const int64_t first = chunk_begin(rows, r, ranks);
  return {first, chunk_begin(rows, r + 1, ranks) - first, 0, width};
}

bool table_by_columns(int64_t width, int ranks) {
  return width >= ranks;
}

Part table_part(int64_t rows, int64_t width, int r, int ranks) {
  return table_by_columns(width, ranks) ? columns_of(rows, width, r, ranks) : Part{0, rows, 0, width};
}

RowOrder order_rows(std::span<const int32_t> index, int64_t width, int ranks) {
  RowOrder order;
  order.places.resize(index.size());
  if (table_by_columns(width, ranks)) {
    std::iota(order.places.begin(), order.places.end(), 0);
    for (int r = 0; r < ranks; ++r)
      order.parts.push_back(columns_of(static_cast<int64_t>(index.size()), width, r, ranks));
    return order;
  }
  std::vector<int64_t> starts(static_cast<size_t>(ranks) + 1);
  for (const int32_t row : index) ++starts[static_cast<size_t>(row % ranks) + 1];
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  for (size_t r = 0; r + 1 < starts.size(); ++r)
    order.parts.push_back({starts[r], starts[r + 1] - starts[r], 0, width});
  for (size_t i = 0; i < index.size(); ++i)
    order.places[static_cast<size_t>(starts[static_cast<size_t>(index[i] % ranks)]++)] = static_cast<int64_t>(i);
  return order;
}

void unpack(const float* from, const Part& part, float* block, int64_t width) {
  each_row(part, [&](int64_t i) {
    std::copy_n(from + i * part.columns, part.columns, block + (part.row + i) * width + part.column);
  });
}

void copy_common(const float* from, const Part& a, float* to, const Part& b) {
  const int64_t first = std::max(a.column, b.column), last = std::min(a.column + a.columns, b.column + b.columns);
  if (first >= last) return;
  for (int64_t row = std::max(a.row, b.row); row < std::min(a.row + a.rows, b.row + b.rows); ++row)
    std::copy_n(from + (row - a.row) * a.columns + first - a.column, last - first,
                to + (row - b.row) * b.columns + first - b.column);
}

}  // namespace lmx::comm
