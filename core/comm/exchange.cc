#include "comm/exchange.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lmx/error.h"

namespace lmx::comm {
namespace {

// The positions of each rank's rows in `index`, ascending; rows that are not in `index` are left out.
std::vector<Uploaded<int32_t>> places_of(Context& ctx, const GatheredIndices& gathered,
                                         std::span<const int32_t> index) {
  std::vector<Uploaded<int32_t>> places;
  const auto reading = ctx.read<int32_t>(gathered.all);
  size_t at = 0;
  for (const int64_t count : gathered.counts) {
    const auto all = reading.get().subspan(at, static_cast<size_t>(count));
    at += all.size();
    std::vector<int32_t> rows(all.begin(), all.end());
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    std::vector<int32_t> found;
    auto next = index.begin();
    for (const int32_t row : rows) {
      next = std::lower_bound(next, index.end(), row);
      if (next != index.end() && *next == row) found.push_back(static_cast<int32_t>(next - index.begin()));
    }
    places.push_back(ctx.upload(std::move(found)));
  }
  return places;
}

}  // namespace

void Exchange::check(const std::string& name, const Tensor& own) const {
  if (own.dtype() != DType::f32)
    throw UserError(str("[codec] ", codec->name(), " encodes f32; the gradient of ", name, " is ", describe(own)));
}

BlockTransfer Exchange::dense_transfer(Context& ctx, const std::string& name, const Tensor& own) {
  check(name, own);
  BlockTransfer w{.name = &name, .width = codec->columns() ? row_width(own.shape()) : 1, .feedback = codec->feedback()};
  const int64_t rows = w.width ? own.numel() / w.width : 0;
  w.own = Rows(own.reshape({rows, w.width}));
  if (w.feedback) w.residual = residuals.exchange(ctx, Side::push, name, rows, w.width);
  w.rows = rows;
  w.ranks = ctx.comm->size();
  return w;
}

// Only this rank's rows are encoded: zeros for rows that only other ranks have would count in the means of the columns.
BlockTransfer Exchange::table_transfer(Context& ctx, const std::string& name, const RowSparse& own,
                                       const std::vector<int32_t>& index, const GatheredIndices* gathered) {
  const int ranks = ctx.comm->size();
  BlockTransfer w{.name = &name,
                  .width = row_width(own.rows.shape()),
                  .feedback = codec->feedback() && config.residual == "rows",
                  .table = true};
  RowOrder mine = order_rows(own.indices, w.width, ranks), all = order_rows(index, w.width, ranks);
  w.own_parts = mine.parts;
  w.sum_parts = all.parts;
  const Part summed = w.sum_part(static_cast<size_t>(ctx.comm->rank()));
  w.sum_places = std::move(all.places);
  for (int64_t i = summed.row; i < summed.row + summed.rows; ++i)
    w.sum_index.push_back(index[static_cast<size_t>(w.sum_places[static_cast<size_t>(i)])]);
  if (w.feedback) {
    std::vector<int32_t> rows;
    for (const int32_t place : mine.places) rows.push_back(own.indices[static_cast<size_t>(place)]);
    w.residual = residuals.exchange_rows(ctx, Side::push, name, rows, w.width);
  }
  w.own = Rows(own.rows.reshape({own.rows.dim(0), w.width}), ctx.upload(std::move(mine.places)));
  if (gathered && table_by_columns(w.width, ranks)) {
    w.places = ctx.comm->once<std::vector<Uploaded<int32_t>>>([&] { return places_of(ctx, *gathered, index); });
  } else if (gathered) {
    w.places = places_of(ctx, *gathered, w.sum_index);
  }
  return w;
}

// Encodes the part of this rank's values that another rank sums, and stores the quantisation error.
void Exchange::encode_part(Context& ctx, const BlockTransfer& w, const Part& part, Tensor to) {
  if (!w.feedback && part.columns == w.width && !w.own.at.data())
    return health.encode(ctx, *codec, *w.name, w.own.tensor.slice(part.row, part.row + part.rows), to);
  const Tensor packed = ctx.empty({part.rows, part.columns}, DType::f32, MemClass::communication);
  const Rows values(packed);
  run_kernel(ctx, CopyRows<float>{w.own.from(part.row, part.column), w.residual.before.from(part.row, part.column),
                                  values.from(), part.rows, part.columns});
  health.encode(ctx, *codec, *w.name, packed, to, w.feedback ? packed : Tensor());
  if (w.feedback)
    run_kernel(ctx,
               CopyRows<float>{values.from(), {}, w.residual.now.from(part.row, part.column), part.rows, part.columns});
}

// The messages to all ranks, one after the other. A message contains the parts of every block that its receiver sums.
// `sizes`: bytes of each message.
Tensor Exchange::encode(Context& ctx, std::span<BlockTransfer> transfers, std::vector<int64_t>& sizes) {
  sizes.assign(static_cast<size_t>(ctx.comm->size()), 0);
  for (size_t r = 0; r < sizes.size(); ++r)
    for (const BlockTransfer& w : transfers) sizes[r] += bytes(w.own_part(r));
  Tensor messages =
      ctx.empty({std::accumulate(sizes.begin(), sizes.end(), int64_t{0})}, DType::u8, MemClass::communication);
  int64_t at = 0;
  for (size_t r = 0; r < sizes.size(); ++r) {
    for (const BlockTransfer& w : transfers) {
      const Part part = w.own_part(r);
      encode_part(ctx, w, part, messages.slice(at, at + bytes(part)));
      at += bytes(part);
    }
  }
  return messages;
}

// The residual of the previous sum of this part is added before encoding.
void Exchange::encode_sum(Context& ctx, const BlockTransfer& w, Tensor sum, Tensor to) {
  if (w.feedback)
    w.table ? residuals.add_rows(ctx, Side::sum, *w.name, w.sum_index, sum)
            : residuals.add(ctx, Side::sum, *w.name, sum);
  health.encode(ctx, *codec, *w.name, sum, to, w.feedback ? sum : Tensor());
  if (w.feedback)
    w.table ? residuals.keep_rows(ctx, Side::sum, *w.name, w.sum_index, sum) : residuals.keep(Side::sum, *w.name, sum);
}

// The sum that this rank computes of a block. `from`: where the block begins in each rank's message; it becomes where
// the next one begins.
Tensor Exchange::sum_of(Context& ctx, const BlockTransfer& w, std::span<const Tensor> received,
                        std::vector<int64_t>& from) {
  const Part mine = w.sum_part(static_cast<size_t>(ctx.comm->rank()));
  const Tensor sum = ctx.zeros({mine.rows, mine.columns}, DType::f32, MemClass::communication);
  for (size_t r = 0; r < received.size(); ++r) {
    BlockPlace place(sum);
    place.rows = w.rows_from(r, mine);
    if (!w.places.empty()) place.at = w.places[r];
    const int64_t size = codec->bytes(place.rows, mine.columns);
    codec->add(ctx, received[r].slice(from[r], from[r] + size), place);
    from[r] += size;
  }
  return sum;
}

// The sums that this rank computes, encoded.
Tensor Exchange::encode_sums(Context& ctx, std::span<BlockTransfer> transfers, std::span<const Tensor> received) {
  const auto me = static_cast<size_t>(ctx.comm->rank());
  int64_t total = 0;
  for (const BlockTransfer& w : transfers) total += bytes(w.sum_part(me));
  Tensor out = ctx.empty({total}, DType::u8, MemClass::communication);
  std::vector<int64_t> from(received.size());
  int64_t to = 0;
  for (const BlockTransfer& w : transfers) {
    const int64_t size = bytes(w.sum_part(me));
    encode_sum(ctx, w, sum_of(ctx, w, received, from), out.slice(to, to + size));
    to += size;
  }
  return out;
}

// The sums of all blocks, one after the other.
Tensor Exchange::decode(Context& ctx, std::span<const BlockTransfer> transfers, const Tensor& encoded) const {
  const auto ranks = static_cast<size_t>(ctx.comm->size());
  std::vector<int64_t> values(transfers.size());  // number of values of each block
  for (size_t i = 0; i < transfers.size(); ++i) {
    for (size_t r = 0; r < ranks; ++r) {
      const Part part = transfers[i].sum_part(r);
      values[i] += part.rows * part.columns;
    }
  }
  const int64_t total = std::accumulate(values.begin(), values.end(), int64_t{0});
  Tensor out = ctx.empty({total}, DType::f32, MemClass::communication);
  int64_t from = 0;
  for (size_t r = 0; r < ranks; ++r) {
    int64_t at = 0;
    for (size_t i = 0; i < transfers.size(); at += values[i++]) {
      const int64_t width = transfers[i].width;
      const Part part = transfers[i].sum_part(r);
      BlockPlace place(out.slice(at, at + values[i]).reshape({width ? values[i] / width : 0, width}));
      place.row = part.row, place.rows = part.rows, place.column = part.column, place.columns = part.columns;
      codec->decode(ctx, encoded.slice(from, from + bytes(part)), place);
      from += bytes(part);
    }
  }
  return out;
}

// Encodes the blocks. Returns the messages of all ranks to this one.
std::vector<Tensor> Exchange::swap_parts(Context& ctx, std::span<BlockTransfer> transfers) {
  std::vector<int64_t> to, from(static_cast<size_t>(ctx.comm->size()));
  for (const BlockTransfer& w : transfers) {
    const Part mine = w.sum_part(static_cast<size_t>(ctx.comm->rank()));
    for (size_t r = 0; r < from.size(); ++r) from[r] += codec->bytes(w.rows_from(r, mine), mine.columns);
  }
  const Tensor messages = encode(ctx, transfers, to);
  for (BlockTransfer& w : transfers) w.own = {}, w.residual = {};
  return ctx.comm->all_to_all(messages, to, from, group);
}

std::vector<Tensor> Exchange::scatter(Context& ctx, std::span<BlockTransfer> transfers) {
  const std::vector<Tensor> received = swap_parts(ctx, transfers);
  std::vector<int64_t> from(received.size());
  std::vector<Tensor> sums;
  for (const BlockTransfer& w : transfers) sums.push_back(sum_of(ctx, w, received, from));
  return sums;
}

Tensor Exchange::run(Context& ctx, std::span<BlockTransfer> transfers) {
  std::vector<int64_t> sizes(static_cast<size_t>(ctx.comm->size()));
  for (const BlockTransfer& w : transfers)
    for (size_t r = 0; r < sizes.size(); ++r) sizes[r] += bytes(w.sum_part(r));
  const Tensor own = encode_sums(ctx, transfers, swap_parts(ctx, transfers));
  const Tensor all = ctx.comm->all_gather(own, sizes, group);
  return ctx.comm->once_tensor(MemClass::communication, [&] { return decode(ctx, transfers, all); });
}

}  // namespace lmx::comm
