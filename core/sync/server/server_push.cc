#include "sync/server/server_push.h"

#include <algorithm>

#include "lmx/comm.h"
#include "lmx/error.h"
#include "lmx/row_sync.h"

namespace lmx::server {

int64_t push_bytes(const Codec& codec, bool sparse, int64_t rows, int64_t width) {
  const int64_t values = codec.elementwise() ? codec.bytes(rows * width, 1) : codec.bytes(rows, width);
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

}  // namespace lmx::server
