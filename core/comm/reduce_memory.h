// The communication memory of a sum over ranks (lmx/codec.h, class Reducer), from sizes alone.
#pragma once

#include <cstdint>
#include <span>

#include "lmx/codec.h"
#include "lmx/exchange_memory.h"

namespace lmx::comm {

struct BlockSize {
  int64_t rows = 0, width = 1;
};

// How a Reducer sums, and the place of a rank in it. `per_node`: ranks of each node.
struct SumShape {
  const Codec* codec = nullptr;  // null: values are not encoded
  int levels = 1;
  int rank = 0, ranks = 1, per_node = 1;
};

// With the sums that it returns, without the rank's own values. reduce() of blocks in one message:
PassingBytes sum_memory(const SumShape& shape, std::span<const BlockSize> blocks);
// reduce_rows() with a codec that does not encode values one by one. `own`, `all`: as in Reducer::sent_row_bytes(). Its
// residuals are those of `rows` rows of the table.
PassingBytes row_sum_memory(const SumShape& shape, const RankRows& own, const RankRows& all, int64_t width,
                            int64_t rows);

}  // namespace lmx::comm
