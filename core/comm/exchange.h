// The sum over ranks of encoded blocks: encode, all_to_all, add in rank order, encode the sum, all_gather, decode once.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/codec/codecs.h"
#include "comm/residuals.h"
#include "lmx/row_sync.h"

namespace lmx::comm {

// Block transfer: the plan by which one block is reduced.
struct BlockTransfer {
  const std::string* name = nullptr;
  int64_t rows = 0, width = 1;  // of the complete block
  Rows own = {};                // (rows, width), in sending order
  int ranks = 1;
  std::vector<Part> own_parts = {};    // in that order, by destination rank; empty: as divided by part_of()
  Residuals::Exchanged residual = {};  // with error feedback, in that order
  std::vector<Part> sum_parts = {};    // of the sum, by the rank that computes it; empty: as divided by part_of()
  bool feedback = false;
  bool table = false;
  std::vector<int32_t> sum_index = {};   // for a table: index of each row that this rank sums
  std::vector<int32_t> sum_places = {};  // of all ranks' sums, in the order of their parts: position in the index
  // For a table of which ranks have different rows: by rank, their positions among the rows that this rank sums.
  std::vector<Uploaded<int32_t>> places = {};
  Part own_part(size_t rank) const { return part(own_parts, rank); }
  Part sum_part(size_t rank) const { return part(sum_parts, rank); }
  int64_t rows_from(size_t rank, const Part& mine) const { return places.empty() ? mine.rows : places[rank].size(); }

 private:
  Part part(const std::vector<Part>& parts, size_t rank) const {
    return parts.empty() ? part_of(rows, width, static_cast<int>(rank), ranks) : parts[rank];
  }
};

struct Exchange {
  CodecConfig config;
  std::string group;
  std::unique_ptr<Codec> codec;
  HealthCounters health;
  Residuals residuals;

  void check(const std::string& name, const Tensor& own) const;  // UserError: not f32
  int64_t bytes(const Part& part) const { return codec->bytes(part.rows, part.columns); }
  BlockTransfer dense_transfer(Context& ctx, const std::string& name, const Tensor& own);
  // `gathered`: see Reducer::reduce_rows().
  BlockTransfer table_transfer(Context& ctx, const std::string& name, const RowSparse& own,
                               const std::vector<int32_t>& index, const GatheredIndices* gathered);
  // The sums of all blocks, one after the other.
  Tensor run(Context& ctx, std::span<BlockTransfer> transfers);
  // The part of each block's sum that this rank computes, (rows, columns).
  std::vector<Tensor> scatter(Context& ctx, std::span<BlockTransfer> transfers);

 private:
  Tensor encode(Context& ctx, std::span<BlockTransfer> transfers, std::vector<int64_t>& sizes);
  std::vector<Tensor> swap_parts(Context& ctx, std::span<BlockTransfer> transfers);
  Tensor sum_of(Context& ctx, const BlockTransfer& w, std::span<const Tensor> received, std::vector<int64_t>& from);
  void encode_part(Context& ctx, const BlockTransfer& w, const Part& part, Tensor to);
  Tensor encode_sums(Context& ctx, std::span<BlockTransfer> transfers, std::span<const Tensor> received);
  void encode_sum(Context& ctx, const BlockTransfer& w, Tensor sum, Tensor to);
  Tensor decode(Context& ctx, std::span<const BlockTransfer> transfers, const Tensor& encoded) const;
};

}  // namespace lmx::comm
