// Sums of gradients over ranks, in encoded form.
#include <algorithm>
#include <numeric>

#include "comm/exchange.h"
#include "lmx/error.h"

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
  std::vector<Tensor> out;
  int64_t at = 0;
  for (const Block& b : blocks) {
    out.push_back(sum.slice(at, at + b.own.numel()).reshape(b.own.shape()));
    at += b.own.numel();
  }
  return out;
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
  const Tensor sums = impl_->run(ctx, transfers);
  int64_t at = 0;
  for (const Block& b : blocks) {
    out.push_back(sums.slice(at, at + b.own.numel()).reshape(b.own.shape()));
    at += b.own.numel();
  }
  return out;
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
