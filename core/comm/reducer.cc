// Sums of gradients over ranks, in encoded form.
#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/codec/codecs.h"
#include "comm/residuals.h"
#include "lmx/error.h"
#include "lmx/row_sync.h"

namespace lmx::comm {

// The sum over ranks of encoded blocks: encode, all_to_all, add in rank order, encode the sum, all_gather, decode once.

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

namespace lmx {
namespace {

// Elements [begin, end) of a message that several blocks form together, all of one block.
struct Piece {
  size_t block;
  int64_t begin, end;
};

// The pieces of the blocks in elements [begin, end) of a message. `sizes`: elements of each block.
std::vector<Piece> pieces_in(std::span<const int64_t> sizes, int64_t begin, int64_t end) {
  std::vector<Piece> pieces;
  int64_t at = 0;
  for (size_t i = 0; i < sizes.size(); at += sizes[i++]) {
    const Piece piece{i, std::max(begin, at), std::min(end, at + sizes[i])};
    if (piece.begin < piece.end) pieces.push_back(piece);
  }
  return pieces;
}

// The sums of blocks, which follow each other in `all`, in their shapes.
std::vector<Tensor> views(const Tensor& all, std::span<const Reducer::Block> blocks) {
  std::vector<Tensor> out;
  int64_t at = 0;
  for (const Reducer::Block& b : blocks) {
    out.push_back(all.slice(at, at + b.own.numel()).reshape(b.own.shape()));
    at += b.own.numel();
  }
  return out;
}

}  // namespace

struct Reducer::Impl : comm::Exchange {
  int levels = 1;
  bool plain() const { return config.kind == "none"; }
  Tensor reduce_own_rows(Context& ctx, const std::string& name, const RowSparse& own, const std::vector<int32_t>& index,
                         const GatheredIndices* gathered);
  std::vector<Tensor> reduce_joined(Context& ctx, std::span<const Block> blocks, bool by_level);
  Tensor sum_by_level(Context& ctx, std::span<const Block> blocks, const Tensor& message);
  Tensor sum_between_nodes(Context& ctx, std::span<const Block> blocks, const Tensor& own, int64_t begin);
};

Tensor Reducer::Impl::reduce_own_rows(Context& ctx, const std::string& name, const RowSparse& own,
                                      const std::vector<int32_t>& index, const GatheredIndices* gathered) {
  check(name, own.rows);
  Shape shape = own.rows.shape();
  shape[0] = static_cast<int64_t>(index.size());
  comm::BlockTransfer w = table_transfer(ctx, name, own, index, gathered);
  const int64_t width = w.width;
  const Tensor sums = run(ctx, std::span(&w, 1));
  if (comm::table_by_columns(width, ctx.comm->size())) return sums.reshape(shape);
  return ctx.comm->once_tensor(MemClass::communication, [&] {
    std::vector<int32_t> back(w.sum_places.size());
    for (size_t i = 0; i < back.size(); ++i) back[static_cast<size_t>(w.sum_places[i])] = static_cast<int32_t>(i);
    return comm::gather_rows(ctx, sums.reshape({shape[0], width}), ctx.upload(std::move(back))).reshape(shape);
  });
}

// Several blocks are joined into one message, so that the results are views of the sum and need no copy.
std::vector<Tensor> Reducer::Impl::reduce_joined(Context& ctx, std::span<const Block> blocks, bool by_level) {
  std::vector<Tensor> parts;
  for (const Block& b : blocks) parts.push_back(b.own);
  const Tensor message = parts.size() == 1 ? parts[0].reshape({-1}) : comm::joined(ctx, parts[0].dtype(), parts);
  const Tensor sum = by_level ? sum_by_level(ctx, blocks, message) : ctx.comm->all_reduce(message, group);
  return views(sum, blocks);
}

Tensor Reducer::Impl::sum_by_level(Context& ctx, std::span<const Block> blocks, const Tensor& message) {
  Communicator& node = ctx.comm->in_node();
  const int64_t begin = chunk_begin(message.numel(), node.rank(), node.size());
  const Tensor sum = sum_between_nodes(ctx, blocks, node.reduce_scatter(message, group), begin);
  Tensor all = node.all_gather(sum, RankRows::divided(node.size(), message.numel()), group);
  // Ranks that share memory keep one of their equal sums.
  if (ctx.comm->shares_memory() && ctx.comm->rank() != 0) all = {};
  return ctx.comm->once_tensor(MemClass::communication, [&] { return all; });
}

// `own`: the sum of this node for the elements of the message from `begin` on. The number of collectives does not
// depend on the number of blocks, which differs among the ranks of a node.
Tensor Reducer::Impl::sum_between_nodes(Context& ctx, std::span<const Block> blocks, const Tensor& own, int64_t begin) {
  Context between = ctx;
  between.comm = &ctx.comm->between_nodes();
  if (plain()) return between.comm->all_reduce(own, group);
  std::vector<int64_t> sizes;
  for (const Block& b : blocks) sizes.push_back(b.own.numel());
  std::vector<comm::BlockTransfer> transfers;
  for (const Piece& p : pieces_in(sizes, begin, begin + own.numel()))
    transfers.push_back(dense_transfer(between, blocks[p.block].name, own.slice(p.begin - begin, p.end - begin)));
  return run(between, transfers);
}

Reducer::Reducer(const CodecConfig& config, std::string group, int levels) : impl_(std::make_unique<Impl>()) {
  impl_->config = config;
  impl_->levels = levels;
  impl_->group = std::move(group);
  impl_->codec = make_codec(config);
}
Reducer::~Reducer() = default;

const Codec& Reducer::codec() const {
  return *impl_->codec;
}

Tensor Reducer::reduce(Context& ctx, const std::string& name, const Tensor& own) {
  const Block block{name, own};
  return reduce(ctx, std::span(&block, 1))[0];
}

std::vector<Tensor> Reducer::reduce(Context& ctx, std::span<const Block> blocks) {
  std::vector<Tensor> out;
  if (blocks.empty()) return out;
  if (ctx.comm->size() == 1) {
    for (const Block& b : blocks) out.push_back(impl_->residuals.settle(ctx, b.name, b.own));
    return out;
  }
  const RankNodes& nodes = ctx.comm->nodes();
  LMX_CHECK(impl_->levels == 1 || nodes.per_node() > 0, "two levels and nodes with different numbers of ranks");
  const bool one_node = nodes.count() == 1, by_level = impl_->levels == 2 && !one_node && nodes.per_node() > 1;
  if (by_level || impl_->plain() || (impl_->levels == 2 && one_node))
    return impl_->reduce_joined(ctx, blocks, by_level);
  std::vector<comm::BlockTransfer> transfers;
  for (const Block& b : blocks) transfers.push_back(impl_->dense_transfer(ctx, b.name, b.own));
  return views(impl_->run(ctx, transfers), blocks);
}

std::vector<Tensor> Reducer::reduce_scatter(Context& ctx, std::span<const Divided> blocks) {
  std::vector<Tensor> out;
  if (ctx.comm->size() == 1) {
    for (const Divided& b : blocks) out.push_back(impl_->residuals.settle(ctx, b.name, b.own));
    return out;
  }
  std::vector<comm::BlockTransfer> transfers;
  for (const Divided& b : blocks) {
    comm::BlockTransfer& w = transfers.emplace_back(impl_->dense_transfer(ctx, b.name, b.own));
    for (size_t r = 0; r + 1 < b.begin.size(); ++r)
      w.own_parts.push_back({b.begin[r], b.begin[r + 1] - b.begin[r], 0, 1});
    w.sum_parts = w.own_parts;
  }
  for (const Tensor& sum : impl_->scatter(ctx, transfers)) out.push_back(sum.reshape({-1}));
  return out;
}

Tensor Reducer::reduce_rows(Context& ctx, const std::string& name, RowSparse own, const std::vector<int32_t>& index,
                            const GatheredIndices* gathered) {
  LMX_CHECK(own.unique && own.rows.rank() > 0 && own.rows.dim(0) == static_cast<int64_t>(own.indices.size()),
            describe(own.rows), " and ", own.indices.size(), " indices");
  LMX_CHECK(gathered || own.indices.size() == index.size(), own.indices.size(), " rows of ", index.size());
  if (ctx.comm->size() == 1) return impl_->residuals.settle_rows(ctx, name, own.rows, index);
  if (impl_->codec->columns() || impl_->codec->feedback())
    return impl_->reduce_own_rows(ctx, name, own, index, gathered);
  if (gathered) own.rows = spread_rows(ctx, own, index);
  return reduce(ctx, name, own.rows);
}

Tensor Reducer::gather(Context& ctx, const std::string& name, const Tensor& own, std::span<const int64_t> rows) {
  const Codec& codec = *impl_->codec;
  LMX_CHECK(!codec.columns() && !codec.feedback(), codec.name(), " cannot be gathered");
  if (impl_->plain() || ctx.comm->size() == 1) return ctx.comm->all_gather(own, rows, impl_->group);
  impl_->check(name, own);
  const int64_t width = row_width(own.shape());
  std::vector<int64_t> sizes;
  for (const int64_t n : rows) sizes.push_back(codec.bytes(n, width));
  Tensor encoded = ctx.empty({codec.bytes(own.dim(0), width)}, DType::u8, MemClass::communication);
  impl_->health.encode(ctx, codec, name, own, encoded);
  const Tensor all = ctx.comm->all_gather(encoded, sizes, impl_->group);
  return ctx.comm->once_tensor(MemClass::communication, [&] {
    Shape shape = own.shape();
    shape[0] = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    const Tensor out = ctx.empty(shape, DType::f32, MemClass::communication);
    int64_t from = 0, row = 0;
    for (size_t r = 0; r < sizes.size(); from += sizes[r], row += rows[r++])
      codec.decode(ctx, all.slice(from, from + sizes[r]), out.slice(row, row + rows[r]));
    return out;
  });
}

std::map<std::string, CodecHealth> Reducer::take_health() {
  std::map<std::string, CodecHealth> taken = impl_->health.take();
  for (auto& [name, h] : taken) h.residual = impl_->residuals.squares(name);
  return taken;
}

void Reducer::commit() {
  impl_->residuals.commit();
}

void Reducer::discard() {
  impl_->residuals.discard();
}

void Reducer::rescale(double factor) {
  impl_->residuals.rescale(factor);
}

StateDict Reducer::state() const {
  return impl_->residuals.state();
}

void Reducer::load(Context& ctx, const std::vector<StateDict>& ranks) {
  if (!impl_->codec->feedback()) {
    for (const StateDict& state : ranks)
      if (!state.empty())
        throw UserError(str("[codec] the checkpoint contains the residual ", state.begin()->first, ", and codec ",
                            impl_->codec->name(), " keeps no residuals; continue with the codec of the checkpoint"));
    return;
  }
  impl_->residuals.load(ctx, ranks);
}

}  // namespace lmx
