#include "comm/reduce_memory.h"

#include <algorithm>

#include "comm/partition.h"

namespace lmx {

ExchangeMemoryModel::~ExchangeMemoryModel() = default;

}  // namespace lmx

namespace lmx::comm {
namespace {

constexpr int64_t kFloat = 4;

int64_t floats(const Part& part) {
  return kFloat * part.rows * part.columns;
}

int64_t chunk(int64_t n, int r, int parts) {
  return kFloat * (chunk_begin(n, r + 1, parts) - chunk_begin(n, r, parts));
}

// Bytes of an encoded exchange (comm/exchange.h). `sent`: the encoding of all own values. `received`: from each other
// rank. `mine`: the sums that this rank computes, encoded, and `mine_values` before that. `all`: all encoded sums, and
// `all_values` decoded. `packed`: the largest part that is copied before it is encoded.
struct ExchangeSizes {
  int64_t sent = 0, received = 0, mine = 0, mine_values = 0, all = 0, all_values = 0, packed = 0;
};

// A sum of this rank. With error feedback its memory becomes that of its residual; then `mine_values` counts all sums.
void add_sum(ExchangeSizes& s, const Codec& codec, const Part& mine, int64_t received_rows) {
  s.received += codec.bytes(received_rows, mine.columns);
  s.mine += codec.bytes(mine.rows, mine.columns);
  s.mine_values = codec.feedback() ? s.mine_values + floats(mine) : std::max(s.mine_values, floats(mine));
}

ExchangeSizes block_sizes(std::span<const BlockSize> blocks, const Codec& codec, int rank, int ranks) {
  ExchangeSizes s;
  for (const BlockSize& b : blocks) {
    const int64_t width = codec.elementwise() ? 1 : b.width, rows = codec.elementwise() ? b.rows * b.width : b.rows;
    for (int r = 0; r < ranks; ++r) {
      const Part part = part_of(rows, width, r, ranks);
      s.sent += codec.bytes(part.rows, part.columns);
      // A range of rows is encoded where it is, unless a residual is added to it.
      if (codec.feedback() || part.columns < width) s.packed = std::max(s.packed, floats(part));
    }
    add_sum(s, codec, part_of(rows, width, rank, ranks), part_of(rows, width, rank, ranks).rows);
    s.all_values += kFloat * b.rows * b.width;
  }
  s.all = s.sent;
  return s;
}

ExchangeSizes row_sizes(const SumShape& shape, const RankRows& own, const RankRows& all, int64_t width) {
  const Codec& codec = *shape.codec;
  const bool columns = table_by_columns(width, shape.ranks);
  ExchangeSizes s;
  for (int r = 0; r < shape.ranks; ++r) {
    const Part sent = table_part(columns ? own.total() : own[r], width, r, shape.ranks),
               sum = table_part(columns ? all.total() : all[r], width, r, shape.ranks);
    s.sent += codec.bytes(sent.rows, sent.columns);
    s.all += codec.bytes(sum.rows, sum.columns);
    s.packed = std::max(s.packed, floats(sent));
  }
  add_sum(s, codec, table_part(columns ? all.total() : all[shape.rank], width, shape.rank, shape.ranks),
          columns ? own.total() : own[shape.rank]);
  s.all_values = kFloat * all.total() * width;
  return s;
}

// The own message stays in memory while what other ranks sent is added, because this rank's own part is a view of it.
PassingBytes encoded_memory(const ExchangeSizes& s, int ranks) {
  const int64_t encoding = s.sent + s.packed, added = s.mine + s.mine_values;
  return {std::max({encoding, s.sent + (ranks - 1) * s.received + added, s.mine + s.all + s.all_values}),
          std::max(encoding, s.sent + added), 0};
}

// Parts arrive from all other ranks; then the sums of all ranks are gathered. `message`: bytes of a copy of the values.
PassingBytes plain_memory(int64_t total, int64_t message, int rank, int ranks) {
  const int64_t own = chunk(total, rank, ranks);
  return {message + own + std::max((ranks - 1) * own, kFloat * total), message + own, 0};
}

PassingBytes level_memory(const SumShape& s, int64_t total, int64_t message) {
  const int64_t own = chunk(total, s.rank % s.per_node, s.per_node);
  const int node = s.rank / s.per_node, nodes = s.ranks / s.per_node;
  PassingBytes between = plain_memory(own / kFloat, 0, node, nodes);
  if (s.codec) {
    const BlockSize block{own / kFloat, 1};
    between = encoded_memory(block_sizes(std::span(&block, 1), *s.codec, node, nodes), nodes);
  }
  return {message + std::max({s.per_node * own, own + between.most, own + kFloat * total}),
          message + own + between.owned, 0};
}

}  // namespace

PassingBytes sum_memory(const SumShape& s, std::span<const BlockSize> blocks) {
  int64_t total = 0;
  for (const BlockSize& b : blocks) total += b.rows * b.width;
  if (s.ranks == 1 || total == 0) return {};
  const bool one_node = s.per_node >= s.ranks;
  const int64_t message = blocks.size() > 1 ? kFloat * total : 0;
  if (s.levels == 2 && !one_node && s.per_node > 1) return level_memory(s, total, message);
  if (!s.codec || (s.levels == 2 && one_node)) return plain_memory(total, message, s.rank, s.ranks);
  const ExchangeSizes sizes = block_sizes(blocks, *s.codec, s.rank, s.ranks);
  PassingBytes memory = encoded_memory(sizes, s.ranks);
  if (s.codec->feedback()) memory.residuals = sizes.all_values + sizes.mine_values;
  return memory;
}

PassingBytes row_sum_memory(const SumShape& s, const RankRows& own, const RankRows& all, int64_t width, int64_t rows) {
  const ExchangeSizes sizes = row_sizes(s, own, all, width);
  PassingBytes memory = encoded_memory(sizes, s.ranks);
  // Sums of rows that ranks own are in the order of their owners, and are copied into that of the index.
  if (!table_by_columns(width, s.ranks)) memory.most = std::max(memory.most, 2 * sizes.all_values);
  memory.residuals = kFloat * width * (rows + rows / s.ranks);
  return memory;
}

}  // namespace lmx::comm
