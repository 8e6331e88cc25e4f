// The bytes of a sum over ranks in closed form, as an oracle for the ledger: Patarasuk and Yuan 2009, section 3, with a
// codec in both directions (Seide et al. 2014, section 3).
#pragma once

#include <cstdint>

#include "comm/partition.h"
#include "lmx/codec.h"

namespace lmx_test {

// Bytes that rank `from` of `ranks` sends to rank `to` when a block (rows, width) is reduced: the part that `to`
// sums, and the sum of the part that `from` sums.
inline int64_t sent_bytes(const lmx::Codec& codec, int from, int to, int ranks, int64_t rows, int64_t width) {
  if (!codec.columns()) rows *= width, width = 1;
  const auto bytes = [&](const lmx::comm::Part& part) { return codec.bytes(part.rows, part.columns); };
  return bytes(lmx::comm::part_of(rows, width, to, ranks)) + bytes(lmx::comm::part_of(rows, width, from, ranks));
}

// The same for rows of a table with a codec that encodes columns. `own`, `all`: rows of rank `from`, and of all ranks
// together, by index modulo the number of ranks.
inline int64_t sent_row_bytes(const lmx::Codec& codec, int from, int to, const lmx::RankRows& own,
                              const lmx::RankRows& all, int64_t width) {
  const int ranks = all.ranks();
  const bool columns = lmx::comm::table_by_columns(width, ranks);
  const int64_t pushed = columns ? own.total() : own[to], summed = columns ? all.total() : all[from];
  const auto bytes = [&](const lmx::comm::Part& part) { return codec.bytes(part.rows, part.columns); };
  return bytes(lmx::comm::table_part(pushed, width, to, ranks)) +
         bytes(lmx::comm::table_part(summed, width, from, ranks));
}

}  // namespace lmx_test
