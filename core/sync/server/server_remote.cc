#include "sync/server/server_remote.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda.h"
#include "comm/rows.h"
#include "lmx/comm.h"
#include "lmx/error.h"
#include "lmx/row_sync.h"

namespace lmx::server {

int64_t push_bytes(const Codec& codec, bool sparse, int64_t rows, int64_t width) {
  const int64_t values = codec.columns() ? codec.bytes(rows, width) : codec.bytes(rows * width, 1);
  return sparse ? 8 + 4 * rows + values : values;
}

Push::Push(const CodecConfig& config, int shards) : config_(config), shards_(shards), codec_(make_codec(config)) {}

// With several ranks the gradient is scaled before it is encoded, so that residuals have the scale of the update.
void Push::add(Context& ctx, Var& param, double factor, Parts& parts) {
  Gradient& grad = param.grad();
  if (grad.empty()) return;
  LMX_CHECK(!grad.sparse() || (grad.pieces.size() == 1 && grad.pieces[0].unique), "the gradient of ", param.name(),
            " is not coalesced");
  Tensor own = grad.sparse() ? grad.pieces[0].rows : grad.dense;
  if (shards_ > 1 && own.dtype() != DType::f32)
    throw UserError(str("[codec] a server takes f32; the gradient of ", param.name(), " is ", describe(own)));
  if (shards_ > 1 && factor != 1) {
    run_kernel(ctx, comm::ScaleRows<float>{{own.data<float>(), 1}, own.numel(), 1, static_cast<float>(factor)});
    factor = 1;
  }
  if (grad.sparse()) {
    add_rows(ctx, param, grad.pieces[0], factor, parts);
  } else {
    add_dense(ctx, param, {.name = param.name(), .values = std::move(own), .scale = factor}, parts);
  }
  residuals_.commit();  // a pushed gradient is always applied
}

void Push::add_dense(Context& ctx, const Var& param, Part part, Parts& parts) {
  Tensor values = part.values;
  const bool feedback = encodes() && codec_->feedback();
  if (feedback) {
    values = ctx.empty({part.values.dim(0), row_width(part.values.shape())}, DType::f32, MemClass::communication);
    values.copy_from(part.values.reshape(values.shape()));
    residuals_.add(ctx, comm::Side::push, part.name, values);
  }
  const int64_t n = param.value().dim(0);
  for (int r = 0; r < shards_; ++r) {
    const int64_t first = chunk_begin(n, r, shards_), last = chunk_begin(n, r + 1, shards_);
    if (first == last) continue;
    part.values = values.slice(first, last);
    part.count = last - first;
    if (encodes()) part.values = encode(ctx, part.name, part.values, feedback);
    parts[static_cast<size_t>(r)].push_back(part);
  }
  if (feedback) residuals_.keep(comm::Side::push, part.name, values);
}

void Push::add_rows(Context& ctx, const Var& param, const RowSparse& own, double factor, Parts& parts) {
  const bool feedback = encodes() && codec_->feedback() && config_.residual == "rows";
  Tensor values = feedback ? own.rows.clone(MemClass::communication) : own.rows;
  if (feedback) residuals_.add_rows(ctx, comm::Side::push, param.name(), own.indices, values);
  const int64_t n = param.value().dim(0);
  size_t from = 0;
  for (int r = 0; r < shards_; ++r) {
    const size_t first = from;
    const int64_t base = chunk_begin(n, r, shards_), last = chunk_begin(n, r + 1, shards_);
    if (base == last) continue;
    Part part{.name = param.name(), .sparse = true, .values = {}, .scale = factor};
    for (; from < own.indices.size() && own.indices[from] < last; ++from)
      part.rows.push_back(static_cast<int32_t>(own.indices[from] - base));
    part.values = values.slice(static_cast<int64_t>(first), static_cast<int64_t>(from));
    part.count = part.values.dim(0);
    if (encodes()) part.values = encode(ctx, param.name(), part.values, feedback);
    parts[static_cast<size_t>(r)].push_back(std::move(part));
  }
  if (feedback) residuals_.keep_rows(ctx, comm::Side::push, param.name(), own.indices, values);
}

// With `feedback` the values become the quantisation error.
Tensor Push::encode(Context& ctx, const std::string& name, const Tensor& values, bool feedback) {
  const int64_t bytes = codec_->bytes(values.dim(0), row_width(values.shape()));
  Tensor encoded = ctx.empty({bytes}, DType::u8, MemClass::communication);
  health_.encode(ctx, *codec_, name, values, encoded, feedback ? values : Tensor());
  return encoded;
}

std::map<std::string, CodecHealth> Push::take_health() {
  std::map<std::string, CodecHealth> taken = health_.take();
  for (auto& [name, h] : taken) h.residual = residuals_.squares(name);
  return taken;
}

namespace {

// The rows of a parameter that a request contains.
enum Extent : uint8_t { kNothing = 0, kAll = 1, kSome = 2 };

// Concatenates pieces. The caller must keep memory of the host alive until text().
class Writer {
 public:
  void add(const void* from, int64_t n) { pieces_.emplace_back(static_cast<const std::byte*>(from), n); }
  // Adds a tensor of any device. A tensor of the host is not copied.
  void add(const Context& ctx, const Tensor& t) {
    copies_.push_back(t.device() == Device{} ? t : copy_to(t, ctx.host));
    add(std::as_const(copies_.back()).raw(), t.bytes());
  }
  void rows(std::span<const int32_t> rows) {
    counts_.push_back(static_cast<int64_t>(rows.size()));
    add(&counts_.back(), sizeof(int64_t));
    add(rows.data(), 4 * counts_.back());
  }
  Tensor text(const Context& ctx) const {
    int64_t bytes = 0;
    for (const auto& [from, n] : pieces_) bytes += n;
    Tensor t = Tensor::empty(ctx.host, {bytes}, DType::u8, MemClass::communication);
    auto* to = static_cast<std::byte*>(t.raw());
    for (const auto& [from, n] : pieces_) to = std::copy_n(from, n, to);
    return t;
  }

 private:
  std::deque<int64_t> counts_;
  std::vector<Tensor> copies_;
  std::vector<std::pair<const std::byte*, int64_t>> pieces_;
};

class Reader {
 public:
  explicit Reader(Tensor text)
      : text_(std::move(text)),
        at_(static_cast<const std::byte*>(std::as_const(text_).raw())),
        end_(at_ + text_.bytes()) {}
  void take(void* to, int64_t n) {
    LMX_CHECK(end_ - at_ >= n, "a message of a server ends after ", end_ - at_, " bytes of ", n);
    if (n > 0) std::memcpy(to, at_, static_cast<size_t>(n));
    at_ += n;
  }
  Tensor take(const Context& ctx, const Shape& shape, DType dtype) {
    Tensor t = Tensor::empty(ctx.host, shape, dtype, MemClass::communication);
    take(t.raw(), t.bytes());
    return t;
  }
  std::vector<int32_t> rows() {
    int64_t n = 0;
    take(&n, sizeof n);
    LMX_CHECK(n >= 0 && 4 * n <= end_ - at_, "a request for ", n, " rows");
    std::vector<int32_t> all(static_cast<size_t>(n));
    take(all.data(), 4 * n);
    return all;
  }

 private:
  Tensor text_;
  const std::byte *at_, *end_;
};

comm::RowsAt<float> rows_at(Tensor& t, const Uploaded<int32_t>& places) {
  return {t.data<float>(), row_width(t.shape()), 0, places.data()};
}

// The rows of a device's tensor that a message asks for, and the rows of a message in a device's tensor.
Tensor gathered(Context& ctx, Tensor from, const std::vector<int32_t>& rows) {
  const int64_t width = row_width(from.shape());
  Tensor some = ctx.empty({static_cast<int64_t>(rows.size()), width}, DType::f32, MemClass::communication);
  const auto at = ctx.upload(rows);
  run_kernel(ctx, comm::CopyRows<float>{rows_at(from, at), {}, rows_at(some, {}), at.size(), width});
  return some;
}
void scatter(Context& ctx, const Tensor& host_rows, Tensor& to, std::span<const int32_t> rows) {
  Tensor some = ctx.upload(host_rows);
  const auto at = ctx.upload(std::vector<int32_t>(rows.begin(), rows.end()));
  run_kernel(ctx, comm::CopyRows<float>{rows_at(some, {}), {}, rows_at(to, at), at.size(), row_width(to.shape())});
}

}  // namespace

Remote::Remote(Link& link, const Context& ctx, const std::string& group, std::vector<std::string> names,
               const ParameterStore& whole, Shard& shard, bool encodes)
    : link_(link), ctx_(ctx), names_(std::move(names)), whole_(whole), shard_(shard), encodes_(encodes) {
  ctx_.tape = nullptr;
  rule_ = link.add(group, static_cast<int>(names_.size()),
                   [this](int worker, const Request& request) { return serve(worker, request); });
}

std::pair<int64_t, int64_t> Remote::range(const std::string& name, int r) const {
  const int64_t n = whole_.at(name).value().dim(0);
  return {chunk_begin(n, r, ctx_.ranks), chunk_begin(n, r + 1, ctx_.ranks)};
}

std::span<const int32_t> Remote::rows_of(const std::vector<int32_t>& chosen, const std::string& name, int r) const {
  const auto [first, last] = range(name, r);
  const auto begin = std::lower_bound(chosen.begin(), chosen.end(), first);
  return {begin, std::lower_bound(begin, chosen.end(), last)};
}

// -------------------------------------------------------------------------------------------------------------- worker

void Remote::pull(const Rows& chosen, ParameterStore& replica) {
  for (int r = 0; r < ctx_.ranks; ++r) {
    Writer body;
    Request request{.kind = Event::pull};
    for (const std::string& name : names_) {
      const auto rows = chosen.find(name);
      request.extents.push_back(rows == chosen.end() ? kAll : kSome);
      if (rows != chosen.end()) body.rows(rows_of(rows->second, name, r));
    }
    request.body = body.text(ctx_);
    link_.send(rule_, r, std::move(request));
  }
  for (int r = 0; r < ctx_.ranks; ++r) {
    int64_t bytes = 0;
    for (const std::string& name : names_) {
      const auto [first, last] = range(name, r);
      const auto rows = chosen.find(name);
      const auto some =
          rows == chosen.end() ? last - first : static_cast<int64_t>(rows_of(rows->second, name, r).size());
      bytes += some * row_bytes(name);
    }
    Reader reply(link_.receive(rule_, r, bytes));
    for (const std::string& name : names_) {
      Tensor& value = replica.at(name).value();
      const auto [first, last] = range(name, r);
      const auto rows = chosen.find(name);
      if (rows == chosen.end()) {
        Tensor to = value.slice(first, last);
        if (value.device() == Device{}) {
          reply.take(to.raw(), to.bytes());
        } else {
          copy_values(to, reply.take(ctx_, to.shape(), DType::f32));
        }
        continue;
      }
      const std::span<const int32_t> some = rows_of(rows->second, name, r);
      const int64_t row = row_bytes(name);
      if (value.device() == Device{}) {
        auto* to = static_cast<std::byte*>(value.raw());
        for (const int32_t i : some) reply.take(to + i * row, row);
      } else if (!some.empty()) {
        scatter(ctx_, reply.take(ctx_, {static_cast<int64_t>(some.size()), row / 4}, DType::f32), value, some);
      }
    }
  }
  for (const std::string& name : names_) replica.at(name).changed();
}

Request Remote::pack_push(const std::vector<Part>& parts, double lr) const {
  Writer body;
  Request request{.kind = Event::push, .lr = lr};
  for (const std::string& name : names_) {
    const auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.name == name; });
    request.extents.push_back(part == parts.end() ? kNothing : part->sparse ? kSome : kAll);
    if (part == parts.end()) continue;
    LMX_CHECK(part->scale == 1, "the gradient of ", name, " is to be scaled before it travels");
    if (part->sparse) body.rows(part->rows);
    body.add(ctx_, part->values);
  }
  request.body = body.text(ctx_);
  return request;
}

void Remote::push(const std::vector<std::vector<Part>>& parts, double lr) {
  for (int r = 0; r < ctx_.ranks; ++r) link_.send(rule_, r, pack_push(parts[static_cast<size_t>(r)], lr));
}

// --------------------------------------------------------------------------------------------------------------- shard

Tensor Remote::serve(int worker, const Request& request) {
  if (request.kind == Event::pull) return serve_pull(worker, request);
  serve_push(worker, request);
  return {};
}

Tensor Remote::serve_pull(int worker, const Request& request) {
  Reader body(request.body);
  Writer reply;
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto [first, last] = range(names_[i], ctx_.rank);
    const bool some = request.extents[i] == kSome;
    std::vector<int32_t> rows = some ? body.rows() : std::vector<int32_t>();
    if (first == last) continue;
    const Tensor& values = shard_.values().at(names_[i]).value();
    if (!some) {
      reply.add(ctx_, values);
      continue;
    }
    for (int32_t& r : rows) {
      LMX_CHECK(r >= first && r < last, "worker ", worker, " asks for row ", r, " of ", names_[i]);
      r -= static_cast<int32_t>(first);
    }
    if (values.device() != Device{}) {
      if (!rows.empty()) reply.add(ctx_, gathered(ctx_, values, rows));
      continue;
    }
    const int64_t row = row_bytes(names_[i]);
    for (const int32_t r : rows) reply.add(static_cast<const std::byte*>(values.raw()) + r * row, row);
  }
  shard_.pulled(worker);
  return reply.text(ctx_);
}

void Remote::serve_push(int worker, const Request& request) {
  Reader body(request.body);
  std::vector<Part> parts;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (request.extents[i] == kNothing) continue;
    Part part{.name = names_[i], .sparse = request.extents[i] == kSome, .values = {}};
    const auto [first, last] = range(part.name, ctx_.rank);
    if (part.sparse) part.rows = body.rows();
    part.count = part.sparse ? static_cast<int64_t>(part.rows.size()) : last - first;
    Shape shape = whole_.at(part.name).shape();
    shape[0] = part.count;
    const int64_t width = row_width(whole_.at(part.name).value().shape());
    part.values =
        ctx_.upload(encodes_ ? body.take(ctx_, {push_bytes(shard_.codec(), false, part.count, width)}, DType::u8)
                             : body.take(ctx_, shape, DType::f32));
    parts.push_back(std::move(part));
  }
  shard_.apply(worker, std::move(parts), request.lr);
}

}  // namespace lmx::server
