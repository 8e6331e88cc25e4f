// The sum over ranks through a codec: encode, all_to_all, add in rank order, encode the sum, all_gather, decode once.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "comm/codecs.h"
#include "comm/residuals.h"
#include "lmx/error.h"
#include "lmx/kernels.h"

namespace lmx {
namespace {

// A block on its way through the ranks.
struct Way {
  const std::string* name = nullptr;
  const float* values = nullptr;  // (rows, width), chunk after chunk
  int64_t width = 1;
  std::vector<int64_t> starts = {};  // chunk r is rows [starts[r], starts[r + 1])
  bool feedback = false;
  Tensor kept = {};                // with feedback: the values, which become what encoding them lost
  std::vector<int32_t> rows = {};  // of a table: the index of each row
  int64_t begin(int r) const { return starts[static_cast<size_t>(r)]; }
  int64_t size(int r) const { return begin(r + 1) - begin(r); }
  int64_t elements(int r) const { return size(r) * width; }
};

LMX_SIMD void add_row(float* to, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += x[i];
}

std::vector<int64_t> even_starts(int64_t rows, int ranks) {
  std::vector<int64_t> starts;
  for (int r = 0; r <= ranks; ++r) starts.push_back(chunk_begin(rows, r, ranks));
  return starts;
}

int64_t width_of(const Tensor& t) {
  int64_t width = 1;
  for (int i = 1; i < t.rank(); ++i) width *= t.dim(i);
  return width;
}

// Places of the rows, owner after owner, ascending for each; and where each owner's begin.
struct ByOwner {
  std::vector<int64_t> places, starts;
};
ByOwner by_owner(const std::vector<int32_t>& index, int ranks) {
  ByOwner order;
  order.starts.assign(static_cast<size_t>(ranks) + 1, 0);
  for (const int32_t row : index) ++order.starts[static_cast<size_t>(row % ranks) + 1];
  std::partial_sum(order.starts.begin(), order.starts.end(), order.starts.begin());
  order.places.resize(index.size());
  std::vector<int64_t> next = order.starts;
  for (size_t i = 0; i < index.size(); ++i)
    order.places[static_cast<size_t>(next[static_cast<size_t>(index[i] % ranks)]++)] = static_cast<int64_t>(i);
  return order;
}

}  // namespace

struct Reducer::Impl {
  CodecConfig config;
  std::string group;
  std::unique_ptr<Codec> codec;
  std::map<std::string, CodecHealth> health;
  comm::Residuals residuals;

  bool plain() const { return config.kind == "none"; }
  bool keeps_rows() const { return codec->feedback() && config.residual == "rows"; }
  void check(const std::string& name, const Tensor& own) const;
  int64_t bytes(std::span<const Way> ways, int r) const;
  Way way(Context& ctx, const std::string& name, const Tensor& own, bool feedback);
  Tensor exchange(Context& ctx, std::span<Way> ways);
  std::vector<Tensor> encode(Context& ctx, std::span<Way> ways);
  Tensor encode_sums(Context& ctx, std::span<Way> ways, std::span<const Tensor> received);
  void before_sum(Context& ctx, const Way& w, float* sum);
  void after_sum(Context& ctx, const Way& w, const float* lost);
  Tensor decode(Context& ctx, std::span<const Way> ways, const Tensor& encoded) const;
  Tensor reduce_owned_rows(Context& ctx, const std::string& name, const Tensor& own, const std::vector<int32_t>& index);
  std::vector<Tensor> reduce_joined(Context& ctx, std::span<const Block> blocks);
};

void Reducer::Impl::check(const std::string& name, const Tensor& own) const {
  if (own.dtype() != DType::f32)
    throw UserError(str("[codec] ", codec->name(), " encodes f32; the gradient of ", name, " is ", describe(own)));
}

int64_t Reducer::Impl::bytes(std::span<const Way> ways, int r) const {
  int64_t sum = 0;
  for (const Way& w : ways) sum += codec->bytes(w.size(r), w.width);
  return sum;
}

Way Reducer::Impl::way(Context& ctx, const std::string& name, const Tensor& own, bool feedback) {
  check(name, own);
  Way w{.name = &name, .values = own.data<float>(), .width = codec->elementwise() ? 1 : width_of(own)};
  const int64_t rows = w.width ? own.numel() / w.width : 0;
  w.starts = even_starts(rows, ctx.comm->size());
  w.feedback = feedback;
  if (feedback) {
    w.kept = residuals.push(ctx, name, {rows, w.width});
    add_row(w.kept.data<float>(), own.data<float>(), own.numel());
    w.values = w.kept.data<float>();
  }
  return w;
}

// Chunk r of every block, for rank r; and what that lost.
std::vector<Tensor> Reducer::Impl::encode(Context& ctx, std::span<Way> ways) {
  std::vector<Tensor> parts;
  for (int r = 0; r < ctx.comm->size(); ++r) {
    parts.push_back(ctx.empty({bytes(ways, r)}, DType::u8, MemClass::communication));
    auto* to = static_cast<std::byte*>(parts.back().raw());
    for (Way& w : ways) {
      const int64_t at = w.begin(r) * w.width;
      codec->encode(w.values + at, w.size(r), w.width, to);
      float* lost = w.feedback ? w.kept.data<float>() + at : nullptr;
      comm::account(*codec, w.values + at, w.size(r), w.width, to, health[*w.name], lost);
      to += codec->bytes(w.size(r), w.width);
    }
  }
  return parts;
}

// What the last sum of this chunk lost joins this one.
void Reducer::Impl::before_sum(Context& ctx, const Way& w, float* sum) {
  const int me = ctx.comm->rank();
  if (w.rows.empty())
    return add_row(sum, residuals.sum(ctx, *w.name, {w.size(me), w.width}).data<float>(), w.elements(me));
  comm::RowStore& store = residuals.sum_rows(*w.name, w.width);
  for (int64_t i = 0; i < w.size(me); ++i)
    if (const float* row = store.find(w.rows[static_cast<size_t>(w.begin(me) + i)]))
      add_row(sum + i * w.width, row, w.width);
}

void Reducer::Impl::after_sum(Context& ctx, const Way& w, const float* lost) {
  const int me = ctx.comm->rank();
  if (w.rows.empty()) {
    std::copy_n(lost, w.elements(me), residuals.sum(ctx, *w.name, {w.size(me), w.width}).data<float>());
    return;
  }
  comm::RowStore& store = residuals.sum_rows(*w.name, w.width);
  for (int64_t i = 0; i < w.size(me); ++i)
    std::copy_n(lost + i * w.width, w.width, store.at(ctx, w.rows[static_cast<size_t>(w.begin(me) + i)]));
}

// The sums of this rank's chunks, encoded.
Tensor Reducer::Impl::encode_sums(Context& ctx, std::span<Way> ways, std::span<const Tensor> received) {
  const int me = ctx.comm->rank();
  Tensor out = ctx.empty({bytes(ways, me)}, DType::u8, MemClass::communication);
  int64_t at = 0;
  for (const Way& w : ways) {
    Tensor sum = ctx.zeros({w.elements(me)}, DType::f32, MemClass::communication);
    float* values = sum.data<float>();
    for (const Tensor& part : received)
      codec->add(static_cast<const std::byte*>(part.raw()) + at, w.size(me), w.width, values);
    if (w.feedback) before_sum(ctx, w, values);
    std::byte* to = static_cast<std::byte*>(out.raw()) + at;
    codec->encode(values, w.size(me), w.width, to);
    comm::account(*codec, values, w.size(me), w.width, to, health[*w.name], w.feedback ? values : nullptr);
    if (w.feedback) after_sum(ctx, w, values);
    at += codec->bytes(w.size(me), w.width);
  }
  return out;
}

Tensor Reducer::Impl::decode(Context& ctx, std::span<const Way> ways, const Tensor& encoded) const {
  int64_t total = 0;
  for (const Way& w : ways) total += w.starts.back() * w.width;
  Tensor out = ctx.empty({total}, DType::f32, MemClass::communication);
  const auto* from = static_cast<const std::byte*>(encoded.raw());
  for (int r = 0; r < ctx.comm->size(); ++r) {
    float* block = out.data<float>();
    for (const Way& w : ways) {
      codec->decode(from, w.size(r), w.width, block + w.begin(r) * w.width);
      from += codec->bytes(w.size(r), w.width);
      block += w.starts.back() * w.width;
    }
  }
  return out;
}

// The sums of all blocks, one after the other, each in the order of its chunks.
Tensor Reducer::Impl::exchange(Context& ctx, std::span<Way> ways) {
  const int ranks = ctx.comm->size();
  std::vector<int64_t> sizes;
  for (int r = 0; r < ranks; ++r) sizes.push_back(bytes(ways, r));
  std::vector<Tensor> parts = encode(ctx, ways);
  for (const Way& w : ways) {  // a dense block's residual is `kept` itself
    if (w.rows.empty()) continue;
    comm::RowStore& store = residuals.push_rows(*w.name, w.width);
    for (size_t i = 0; i < w.rows.size(); ++i)
      std::copy_n(w.kept.data<float>() + static_cast<int64_t>(i) * w.width, w.width, store.at(ctx, w.rows[i]));
  }
  const std::vector<int64_t> same(static_cast<size_t>(ranks), sizes[static_cast<size_t>(ctx.comm->rank())]);
  parts = ctx.comm->all_to_all(std::move(parts), same, group);
  const Tensor own = encode_sums(ctx, ways, parts);
  parts.clear();
  const Tensor all = ctx.comm->all_gather(own, sizes, group);
  return ctx.comm->once_tensor(MemClass::communication, [&] { return decode(ctx, ways, all); });
}

Tensor Reducer::Impl::reduce_owned_rows(Context& ctx, const std::string& name, const Tensor& own,
                                        const std::vector<int32_t>& index) {
  check(name, own);
  const ByOwner order = by_owner(index, ctx.comm->size());
  const auto n = static_cast<int64_t>(index.size());
  Way w{.name = &name, .width = width_of(own), .starts = order.starts, .feedback = true};
  w.kept = ctx.empty({n, w.width}, DType::f32, MemClass::communication);
  comm::RowStore& store = residuals.push_rows(name, w.width);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t place = order.places[static_cast<size_t>(i)];
    w.rows.push_back(index[static_cast<size_t>(place)]);
    float* to = w.kept.data<float>() + i * w.width;
    std::copy_n(own.data<float>() + place * w.width, w.width, to);
    if (const float* row = store.find(w.rows.back())) add_row(to, row, w.width);
  }
  w.values = w.kept.data<float>();
  const Tensor sums = exchange(ctx, std::span(&w, 1));
  return ctx.comm->once_tensor(MemClass::communication, [&] {
    Tensor out = ctx.empty(own.shape(), DType::f32, MemClass::communication);
    for (int64_t i = 0; i < n; ++i)
      std::copy_n(sums.data<float>() + i * w.width, w.width,
                  out.data<float>() + order.places[static_cast<size_t>(i)] * w.width);
    return out;
  });
}

// Without a codec several blocks become one, so that the sum's views need no copy.
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
  std::vector<Way> ways;
  for (const Block& b : blocks) ways.push_back(impl_->way(ctx, b.name, b.own, impl_->codec->feedback()));
  const Tensor sums = impl_->exchange(ctx, ways);
  int64_t at = 0;
  for (const Block& b : blocks) {
    out.push_back(sums.slice(at, at + b.own.numel()).reshape(b.own.shape()));
    at += b.own.numel();
  }
  return out;
}

Tensor Reducer::reduce_rows(Context& ctx, const std::string& name, const Tensor& own,
                            const std::vector<int32_t>& index) {
  LMX_CHECK(own.rank() > 0 && own.dim(0) == static_cast<int64_t>(index.size()), describe(own), " and ", index.size(),
            " indices");
  if (ctx.comm->size() == 1) return impl_->residuals.settle_rows(ctx, name, own, index);
  if (impl_->plain()) return ctx.comm->all_reduce(own, impl_->group);
  if (impl_->keeps_rows()) return impl_->reduce_owned_rows(ctx, name, own, index);
  Way w = impl_->way(ctx, name, own, false);
  return impl_->exchange(ctx, std::span(&w, 1)).reshape(own.shape());
}

Tensor Reducer::gather(Context& ctx, const std::string& name, const Tensor& own, std::span<const int64_t> rows) {
  const Codec& codec = *impl_->codec;
  LMX_CHECK(codec.elementwise(), codec.name(), " cannot be gathered");
  if (impl_->plain() || ctx.comm->size() == 1) return ctx.comm->all_gather(own, rows, impl_->group);
  impl_->check(name, own);
  const int64_t width = width_of(own);
  std::vector<int64_t> sizes;
  for (const int64_t n : rows) sizes.push_back(codec.bytes(n, width));
  Tensor encoded = ctx.empty({codec.bytes(own.dim(0), width)}, DType::u8, MemClass::communication);
  auto* bytes = static_cast<std::byte*>(encoded.raw());
  codec.encode(own.data<float>(), own.dim(0), width, bytes);
  comm::account(codec, own.data<float>(), own.dim(0), width, bytes, impl_->health[name]);
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
  const Codec& codec = *impl_->codec;
  if (codec.elementwise()) rows *= width, width = 1;
  const auto chunk = [&](int r) {
    return codec.bytes(chunk_begin(rows, r + 1, ranks) - chunk_begin(rows, r, ranks), width);
  };
  int64_t sum = (ranks - 1) * chunk(rank);
  for (int r = 0; r < ranks; ++r)
    if (r != rank) sum += chunk(r);
  return sum;
}

int64_t Reducer::sent_row_bytes(int rank, std::span<const int64_t> owned, int64_t width) const {
  const auto ranks = static_cast<int>(owned.size());
  if (ranks == 1 || !impl_->keeps_rows())
    return sent_bytes(rank, ranks, std::accumulate(owned.begin(), owned.end(), int64_t{0}), width);
  int64_t sum = 0;
  for (int r = 0; r < ranks; ++r) {
    const int64_t bytes = impl_->codec->bytes(owned[static_cast<size_t>(r)], width);
    sum += r == rank ? (ranks - 1) * bytes : bytes;
  }
  return sum;
}

std::map<std::string, CodecHealth> Reducer::take_health() {
  std::map<std::string, CodecHealth> taken;
  taken.swap(impl_->health);
  for (auto& [name, h] : taken) h.residual = impl_->residuals.squares(name);
  return taken;
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
