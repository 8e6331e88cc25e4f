// The sum over ranks of encoded blocks: encode, all_to_all, add in rank order, encode the sum, all_gather, decode once.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "comm/codecs.h"
#include "comm/partition.h"
#include "comm/residuals.h"
#include "lmx/error.h"
#include "lmx/kernels.h"
#include "lmx/parallel.h"
#include "lmx/row_sync.h"

namespace lmx {

using comm::Part;
using comm::Side;

namespace {

// Block transfer: the plan by which one block is reduced.
struct BlockTransfer {
  const std::string* name = nullptr;
  int64_t rows = 0, width = 1;           // of the complete block
  Tensor own = {};                       // (rows, width)
  std::vector<int64_t> own_places = {};  // positions of the rows in sending order; empty: unchanged order
  int ranks = 1;
  std::vector<Part> own_parts = {};     // in that order, by destination rank; empty: as divided by part_of()
  comm::Residuals::Rows residual = {};  // with error feedback, in that order
  std::vector<Part> sum_parts = {};     // of the sum, by the rank that computes it; empty: as divided by part_of()
  bool feedback = false;
  bool table = false;
  std::vector<int32_t> sum_index = {};   // for a table: index of each row that this rank sums
  std::vector<int64_t> sum_places = {};  // of all ranks' sums, in the order of their parts: position in the index
  // For a table of which ranks have different rows: by rank, their positions among the rows that this rank sums.
  std::vector<std::vector<int64_t>> places = {};
  const float* own_row(int64_t i) const {
    return own.data<float>() + (own_places.empty() ? i : own_places[static_cast<size_t>(i)]) * width;
  }
  Part own_part(size_t rank) const { return part(own_parts, rank); }
  Part sum_part(size_t rank) const { return part(sum_parts, rank); }
  int64_t rows_from(size_t rank, const Part& mine) const {
    return places.empty() ? mine.rows : static_cast<int64_t>(places[rank].size());
  }

 private:
  Part part(const std::vector<Part>& parts, size_t rank) const {
    return parts.empty() ? comm::part_of(rows, width, static_cast<int>(rank), ranks) : parts[rank];
  }
};

LMX_SIMD void add_row(float* to, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += x[i];
}

// Rows of a tensor (n, ...) in another order, as (n, width).
Tensor in_order(Context& ctx, const Tensor& t, std::span<const int64_t> places) {
  const int64_t width = row_width(t.shape());
  Tensor out = ctx.empty({t.dim(0), width}, DType::f32, MemClass::communication);
  for (size_t i = 0; i < places.size(); ++i)
    std::copy_n(t.data<float>() + places[i] * width, width, out.data<float>() + static_cast<int64_t>(i) * width);
  return out;
}

// The positions of each rank's rows in `index`, ascending; rows that are not in `index` are left out.
std::vector<std::vector<int64_t>> places_of(const GatheredIndices& gathered, std::span<const int32_t> index) {
  std::vector<std::vector<int64_t>> places;
  int64_t at = 0;
  for (const int64_t count : gathered.counts) {
    const auto all = gathered.all.slice(at, at + count).values<int32_t>();
    at += count;
    std::vector<int32_t> rows(all.begin(), all.end());
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    std::vector<int64_t>& found = places.emplace_back();
    auto next = index.begin();
    for (const int32_t row : rows) {
      next = std::lower_bound(next, index.end(), row);
      if (next != index.end() && *next == row) found.push_back(next - index.begin());
    }
  }
  return places;
}

}  // namespace

struct Reducer::Impl {
  CodecConfig config;
  std::string group;
  std::unique_ptr<Codec> codec;
  std::map<std::string, CodecHealth> health;
  comm::Residuals residuals;

  bool plain() const { return config.kind == "none"; }
  void check(const std::string& name, const Tensor& own) const;
  int64_t bytes(const Part& part) const { return codec->bytes(part.rows, part.columns); }
  BlockTransfer dense_transfer(Context& ctx, const std::string& name, const Tensor& own);
  BlockTransfer table_transfer(Context& ctx, const std::string& name, const RowSparse& own,
                               const std::vector<int32_t>& index, const GatheredIndices* gathered);
  Tensor exchange(Context& ctx, std::span<BlockTransfer> transfers);
  Tensor encode(Context& ctx, std::span<BlockTransfer> transfers, std::vector<int64_t>& sizes);
  void encode_part(Context& ctx, const BlockTransfer& w, const Part& part, std::byte* to);
  void encode_block(const BlockTransfer& w, const float* values, int64_t rows, int64_t columns, std::byte* to,
                    float* lost);
  Tensor encode_sums(Context& ctx, std::span<BlockTransfer> transfers, std::span<const Tensor> received);
  void encode_sum(Context& ctx, const BlockTransfer& w, Tensor sum, std::byte* to);
  void add_from(const BlockTransfer& w, size_t rank, const std::byte* part, Tensor& sum) const;
  Tensor decode(Context& ctx, std::span<const BlockTransfer> transfers, const Tensor& encoded) const;
  Tensor reduce_own_rows(Context& ctx, const std::string& name, const RowSparse& own, const std::vector<int32_t>& index,
                         const GatheredIndices* gathered);
  std::vector<Tensor> reduce_joined(Context& ctx, std::span<const Block> blocks);
};

void Reducer::Impl::check(const std::string& name, const Tensor& own) const {
  if (own.dtype() != DType::f32)
    throw UserError(str("[codec] ", codec->name(), " encodes f32; the gradient of ", name, " is ", describe(own)));
}

BlockTransfer Reducer::Impl::dense_transfer(Context& ctx, const std::string& name, const Tensor& own) {
  check(name, own);
  BlockTransfer w{
      .name = &name, .width = codec->elementwise() ? 1 : row_width(own.shape()), .feedback = codec->feedback()};
  const int64_t rows = w.width ? own.numel() / w.width : 0;
  w.own = own.reshape({rows, w.width});
  if (w.feedback) w.residual = residuals.exchange(ctx, Side::push, name, rows, w.width);
  w.rows = rows;
  w.ranks = ctx.comm->size();
  return w;
}

// Only this rank's rows are encoded: zeros for rows that only other ranks have would count in the means of the columns.
BlockTransfer Reducer::Impl::table_transfer(Context& ctx, const std::string& name, const RowSparse& own,
                                            const std::vector<int32_t>& index, const GatheredIndices* gathered) {
  const int ranks = ctx.comm->size();
  BlockTransfer w{
      .name = &name, .width = row_width(own.rows.shape()), .feedback = config.residual == "rows", .table = true};
  const comm::RowOrder mine = comm::order_rows(own.indices, w.width, ranks),
                       all = comm::order_rows(index, w.width, ranks);
  w.own = own.rows.reshape({own.rows.dim(0), w.width});
  w.own_places = mine.places;
  w.own_parts = mine.parts;
  w.sum_parts = all.parts;
  const Part summed = w.sum_part(static_cast<size_t>(ctx.comm->rank()));
  w.sum_places = all.places;
  for (int64_t i = summed.row; i < summed.row + summed.rows; ++i)
    w.sum_index.push_back(index[static_cast<size_t>(w.sum_places[static_cast<size_t>(i)])]);
  if (w.feedback) {
    std::vector<int32_t> rows;
    for (const int64_t place : mine.places) rows.push_back(own.indices[static_cast<size_t>(place)]);
    w.residual = residuals.exchange_rows(ctx, Side::push, name, rows, w.width);
  }
  if (gathered && comm::table_by_columns(w.width, ranks)) {
    w.places = ctx.comm->once<std::vector<std::vector<int64_t>>>([&] { return places_of(*gathered, index); });
  } else if (gathered) {
    w.places = places_of(*gathered, w.sum_index);
  }
  return w;
}

// Encodes the part of this rank's values that another rank sums, and stores the quantisation error.
void Reducer::Impl::encode_part(Context& ctx, const BlockTransfer& w, const Part& part, std::byte* to) {
  const int64_t columns = part.columns, grain = comm::rows_holding(comm::kCodecGrain, columns);
  if (!w.feedback && columns == w.width && w.own_places.empty())
    return encode_block(w, w.own_row(part.row), part.rows, columns, to, nullptr);
  Tensor packed = ctx.empty({part.rows, columns}, DType::f32, MemClass::communication);
  float* values = packed.data<float>();
  parallel_for(part.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(w.own_row(part.row + i) + part.column, columns, values + i * columns);
      const float* kept = w.feedback ? w.residual.before[static_cast<size_t>(part.row + i)] : nullptr;
      if (kept) add_row(values + i * columns, kept + part.column, columns);
    }
  });
  encode_block(w, values, part.rows, columns, to, w.feedback ? values : nullptr);
  if (!w.feedback) return;
  parallel_for(part.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::copy_n(values + i * columns, columns, w.residual.now[static_cast<size_t>(part.row + i)] + part.column);
  });
}

// `lost` becomes the quantisation error; it may be the same memory as `values`.
void Reducer::Impl::encode_block(const BlockTransfer& w, const float* values, int64_t rows, int64_t columns,
                                 std::byte* to, float* lost) {
  codec->encode(values, rows, columns, to);
  comm::account(*codec, {values, rows, columns}, to, health[*w.name], lost);
}

// The messages to all ranks, one after the other. A message contains the parts of every block that its receiver sums.
// `sizes`: bytes of each message.
Tensor Reducer::Impl::encode(Context& ctx, std::span<BlockTransfer> transfers, std::vector<int64_t>& sizes) {
  sizes.assign(static_cast<size_t>(ctx.comm->size()), 0);
  for (size_t r = 0; r < sizes.size(); ++r)
    for (const BlockTransfer& w : transfers) sizes[r] += bytes(w.own_part(r));
  Tensor messages =
      ctx.empty({std::accumulate(sizes.begin(), sizes.end(), int64_t{0})}, DType::u8, MemClass::communication);
  auto* to = static_cast<std::byte*>(messages.raw());
  for (size_t r = 0; r < sizes.size(); ++r) {
    for (const BlockTransfer& w : transfers) {
      encode_part(ctx, w, w.own_part(r), to);
      to += bytes(w.own_part(r));
    }
  }
  return messages;
}

void Reducer::Impl::add_from(const BlockTransfer& w, size_t rank, const std::byte* part, Tensor& sum) const {
  const int64_t columns = sum.dim(1);
  if (w.places.empty()) return codec->add(part, sum.dim(0), columns, sum.data<float>());
  const std::vector<int64_t>& places = w.places[rank];
  comm::decode_strips(*codec, part, static_cast<int64_t>(places.size()), columns,
                      [&](int64_t first, int64_t last, const float* rows) {
                        for (int64_t i = first; i < last; ++i, rows += columns)
                          add_row(sum.data<float>() + places[static_cast<size_t>(i)] * columns, rows, columns);
                      });
}

// The residual of the previous sum of this part is added before encoding.
void Reducer::Impl::encode_sum(Context& ctx, const BlockTransfer& w, Tensor sum, std::byte* to) {
  if (w.feedback)
    w.table ? residuals.add_rows(Side::sum, *w.name, w.sum_index, sum) : residuals.add(Side::sum, *w.name, sum);
  auto* values = sum.data<float>();
  encode_block(w, values, sum.dim(0), sum.dim(1), to, w.feedback ? values : nullptr);
  if (w.feedback)
    w.table ? residuals.keep_rows(ctx, Side::sum, *w.name, w.sum_index, sum) : residuals.keep(Side::sum, *w.name, sum);
}

// The sums that this rank computes, encoded.
Tensor Reducer::Impl::encode_sums(Context& ctx, std::span<BlockTransfer> transfers, std::span<const Tensor> received) {
  const auto me = static_cast<size_t>(ctx.comm->rank());
  int64_t total = 0;
  for (const BlockTransfer& w : transfers) total += bytes(w.sum_part(me));
  Tensor out = ctx.empty({total}, DType::u8, MemClass::communication);
  auto* to = static_cast<std::byte*>(out.raw());
  std::vector<int64_t> at(received.size());
  for (const BlockTransfer& w : transfers) {
    const Part mine = w.sum_part(me);
    Tensor sum = ctx.zeros({mine.rows, mine.columns}, DType::f32, MemClass::communication);
    for (size_t r = 0; r < received.size(); ++r) {
      add_from(w, r, static_cast<const std::byte*>(received[r].raw()) + at[r], sum);
      at[r] += codec->bytes(w.rows_from(r, mine), mine.columns);
    }
    encode_sum(ctx, w, std::move(sum), to);
    to += bytes(mine);
  }
  return out;
}

// The sums of all blocks, one after the other.
Tensor Reducer::Impl::decode(Context& ctx, std::span<const BlockTransfer> transfers, const Tensor& encoded) const {
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
  const auto* from = static_cast<const std::byte*>(encoded.raw());
  for (size_t r = 0; r < ranks; ++r) {
    float* block = out.data<float>();
    for (size_t i = 0; i < transfers.size(); block += values[i++]) {
      const BlockTransfer& w = transfers[i];
      const Part part = w.sum_part(r);
      if (part.columns == w.width) {
        codec->decode(from, part.rows, part.columns, block + part.row * w.width);
      } else {
        comm::decode_strips(*codec, from, part.rows, part.columns, [&](int64_t first, int64_t last, const float* rows) {
          comm::unpack(rows, {part.row + first, last - first, part.column, part.columns}, block, w.width);
        });
      }
      from += bytes(part);
    }
  }
  return out;
}

Tensor Reducer::Impl::exchange(Context& ctx, std::span<BlockTransfer> transfers) {
  const auto ranks = static_cast<size_t>(ctx.comm->size()), me = static_cast<size_t>(ctx.comm->rank());
  std::vector<int64_t> from(ranks), sizes(ranks);
  for (const BlockTransfer& w : transfers) {
    const Part mine = w.sum_part(me);
    for (size_t r = 0; r < ranks; ++r) {
      from[r] += codec->bytes(w.rows_from(r, mine), mine.columns);
      sizes[r] += bytes(w.sum_part(r));
    }
  }
  Tensor own;
  {
    std::vector<int64_t> to;
    Tensor messages = encode(ctx, transfers, to);
    for (BlockTransfer& w : transfers) w.own = {}, w.residual = {};
    const std::vector<Tensor> parts = ctx.comm->all_to_all(messages, to, from, group);
    messages = {};
    own = encode_sums(ctx, transfers, parts);
  }
  const Tensor all = ctx.comm->all_gather(own, sizes, group);
  return ctx.comm->once_tensor(MemClass::communication, [&] { return decode(ctx, transfers, all); });
}

Tensor Reducer::Impl::reduce_own_rows(Context& ctx, const std::string& name, const RowSparse& own,
                                      const std::vector<int32_t>& index, const GatheredIndices* gathered) {
  check(name, own.rows);
  Shape shape = own.rows.shape();
  shape[0] = static_cast<int64_t>(index.size());
  BlockTransfer w = table_transfer(ctx, name, own, index, gathered);
  const int64_t width = w.width;
  const Tensor sums = exchange(ctx, std::span(&w, 1));
  if (comm::table_by_columns(width, ctx.comm->size())) return sums.reshape(shape);
  return ctx.comm->once_tensor(MemClass::communication, [&] {
    std::vector<int64_t> back(w.sum_places.size());
    for (size_t i = 0; i < back.size(); ++i) back[static_cast<size_t>(w.sum_places[i])] = static_cast<int64_t>(i);
    return in_order(ctx, sums.reshape({shape[0], width}), back).reshape(shape);
  });
}

// Without a codec several blocks are joined into one, so that the results are views of the sum and need no copy.
std::vector<Tensor> Reducer::Impl::reduce_joined(Context& ctx, std::span<const Block> blocks) {
  if (blocks.size() == 1) return {ctx.comm->all_reduce(blocks[0].own, group)};
  int64_t total = 0;
  for (const Block& b : blocks) total += b.own.numel();
  Tensor message = ctx.empty({total}, blocks[0].own.dtype(), MemClass::communication);
  int64_t at = 0;
  for (const Block& b : blocks) {
    message.slice(at, at + b.own.numel()).copy_from(b.own.reshape({-1}));
    at += b.own.numel();
  }
  const Tensor sum = ctx.comm->all_reduce(message, group);
  std::vector<Tensor> out;
  at = 0;
  for (const Block& b : blocks) {
    out.push_back(sum.slice(at, at + b.own.numel()).reshape(b.own.shape()));
    at += b.own.numel();
  }
  return out;
}

Reducer::Reducer(const CodecConfig& config, std::string group) : impl_(std::make_unique<Impl>()) {
  impl_->config = config;
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
  if (impl_->plain()) return impl_->reduce_joined(ctx, blocks);
  std::vector<BlockTransfer> transfers;
  for (const Block& b : blocks) transfers.push_back(impl_->dense_transfer(ctx, b.name, b.own));
  const Tensor sums = impl_->exchange(ctx, transfers);
  int64_t at = 0;
  for (const Block& b : blocks) {
    out.push_back(sums.slice(at, at + b.own.numel()).reshape(b.own.shape()));
    at += b.own.numel();
  }
  return out;
}

Tensor Reducer::reduce_rows(Context& ctx, const std::string& name, RowSparse own, const std::vector<int32_t>& index,
                            const GatheredIndices* gathered) {
  LMX_CHECK(own.unique && own.rows.rank() > 0 && own.rows.dim(0) == static_cast<int64_t>(own.indices.size()),
            describe(own.rows), " and ", own.indices.size(), " indices");
  LMX_CHECK(gathered || own.indices.size() == index.size(), own.indices.size(), " rows of ", index.size());
  if (ctx.comm->size() == 1) return impl_->residuals.settle_rows(ctx, name, own.rows, index);
  if (!impl_->codec->elementwise()) return impl_->reduce_own_rows(ctx, name, own, index, gathered);
  if (gathered) own.rows = spread_rows(ctx, own, index);
  return reduce(ctx, name, own.rows);
}

Tensor Reducer::gather(Context& ctx, const std::string& name, const Tensor& own, std::span<const int64_t> rows) {
  const Codec& codec = *impl_->codec;
  LMX_CHECK(codec.elementwise(), codec.name(), " cannot be gathered");
  if (impl_->plain() || ctx.comm->size() == 1) return ctx.comm->all_gather(own, rows, impl_->group);
  impl_->check(name, own);
  const int64_t width = row_width(own.shape());
  std::vector<int64_t> sizes;
  for (const int64_t n : rows) sizes.push_back(codec.bytes(n, width));
  Tensor encoded = ctx.empty({codec.bytes(own.dim(0), width)}, DType::u8, MemClass::communication);
  auto* bytes = static_cast<std::byte*>(encoded.raw());
  codec.encode(own.data<float>(), own.dim(0), width, bytes);
  comm::account(codec, {own.data<float>(), own.dim(0), width}, bytes, impl_->health[name]);
  const Tensor all = ctx.comm->all_gather(encoded, sizes, impl_->group);
  return ctx.comm->once_tensor(MemClass::communication, [&] {
    Shape shape = own.shape();
    shape[0] = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    Tensor out = ctx.empty(shape, DType::f32, MemClass::communication);
    codec.decode(static_cast<const std::byte*>(all.raw()), shape[0], width, out.data<float>());
    return out;
  });
}

int64_t Reducer::sent_bytes(int rank, int ranks, int64_t rows, int64_t width) const {
  if (ranks == 1) return 0;
  if (impl_->codec->elementwise()) rows *= width, width = 1;
  int64_t sum = 0;
  for (int r = 0; r < ranks; ++r) {
    const int64_t bytes = impl_->bytes(comm::part_of(rows, width, r, ranks));
    sum += r == rank ? (ranks - 1) * bytes : bytes;
  }
  return sum;
}

int64_t Reducer::sent_row_bytes(int rank, std::span<const int64_t> own, std::span<const int64_t> all,
                                int64_t width) const {
  const auto ranks = static_cast<int>(all.size());
  const int64_t own_rows = std::accumulate(own.begin(), own.end(), int64_t{0}),
                all_rows = std::accumulate(all.begin(), all.end(), int64_t{0});
  if (ranks == 1 || impl_->codec->elementwise()) return sent_bytes(rank, ranks, all_rows, width);
  const bool columns = comm::table_by_columns(width, ranks);
  int64_t sum = 0;
  for (int r = 0; r < ranks; ++r) {
    const auto i = static_cast<size_t>(r);
    if (r == rank) {
      sum += (ranks - 1) * impl_->bytes(comm::table_part(columns ? all_rows : all[i], width, r, ranks));
    } else {
      sum += impl_->bytes(comm::table_part(columns ? own_rows : own[i], width, r, ranks));
    }
  }
  return sum;
}

std::map<std::string, CodecHealth> Reducer::take_health() {
  std::map<std::string, CodecHealth> taken;
  taken.swap(impl_->health);
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
        throw UserError(str("[codec] the checkpoint keeps the residual ", state.begin()->first, ", codec ",
                            impl_->codec->name(), " would lose it: go on with one_bit"));
    return;
  }
  impl_->residuals.load(ctx, ranks);
}

}  // namespace lmx
