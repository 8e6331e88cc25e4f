#include "comm/partition.h"

#include <numeric>

#include "lmx/comm.h"

namespace lmx::comm {
namespace {

constexpr int64_t kMeans = 64;  // bits of the two means of a column

int64_t largest_chunk(int64_t n, int parts) {
  return (n + parts - 1) / parts;
}

Part columns_of(int64_t rows, int64_t width, int r, int ranks) {
  const int64_t first = chunk_begin(width, r, ranks);
  return {0, rows, first, chunk_begin(width, r + 1, ranks) - first};
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
    order.places[static_cast<size_t>(starts[static_cast<size_t>(index[i] % ranks)]++)] = static_cast<int32_t>(i);
  return order;
}

}  // namespace lmx::comm
