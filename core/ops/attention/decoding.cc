#include "ops/attention/decoding.h"

#include <algorithm>

#include "lmx/array_ops.h"
#include "lmx/decoding.h"
#include "lmx/ops.h"
#include "ops/common.h"
#include "ops/layers/narrow_weight.h"

namespace lmx {

using namespace ops;

Context silent(const Context& ctx) {
  Context quiet = ctx;
  quiet.tape = nullptr;
  quiet.training = false;
  return quiet;
}

bool packs(const Context& ctx, int64_t rows) {
  // On one core, packed weights give 60 to 85 GFLOP/s for 16 to 128 rows, plain weights 42 to 75 (a Transformer of size
  // base, AVX2). For more rows both are equally fast.
  constexpr int64_t kFewRows = 192;
  return ctx.device.kind == Device::Kind::cpu && rows <= kFewRows;
}

Var linear_packed(Context& ctx, const Var& x, const Var& w, const Var& b) {
  const Shape shape{x.value().dim(0), w.value().dim(0)};
  Tensor y = b.defined() ? broadcast_to(ctx, b, shape).value() : ctx.empty(shape, w.value().dtype());
  const float beta = b.defined() ? 1.0F : 0.0F;
  if (!multiply_narrow(ctx, x.value(), w, y, beta))
    packed(ctx, w, true, shape[0]).weight->multiply(ctx, to_compute(ctx, x.value()), y, beta);
  return Var(y);
}

Tensor attend_to_keys(Context& ctx, const Tensor& q, int64_t heads, int64_t size, std::vector<const void*> keys,
                      std::vector<int64_t> begin) {
  Tensor y = ctx.empty({q.dim(0), heads * size}, q.dtype());
  const auto first = ctx.upload(std::move(begin));
  with_values("attend_keys", q, [&](auto zero) {
    using T = decltype(zero);
    std::vector<const T*> typed;
    typed.reserve(keys.size());
    for (const void* key : keys) typed.push_back(static_cast<const T*>(key));
    const auto at = ctx.upload(std::move(typed));
    run_kernel(ctx, AttendKeys<T>{q.data<T>(), q.dim(1), at.data(), first.data(), y.data<T>(), q.dim(0), heads, size});
  });
  return y;
}

TextCache::TextCache(const Context& ctx, const Sizes& sizes, int64_t rows, DType type)
    : sizes_(sizes), rows_(rows), type_(type), layers_(static_cast<size_t>(sizes.layers)) {
  LMX_CHECK(sizes.kv_heads > 0 && sizes.heads % sizes.kv_heads == 0, sizes.heads, " heads, ", sizes.kv_heads);
  for (Kept& kept : layers_) grow(ctx, kept, 1);
}

std::vector<int64_t> TextCache::positions(std::span<const int32_t> ids) const {
  const int64_t n = steps(std::ssize(ids)), length = layers_.at(0).length;
  std::vector<int64_t> positions(ids.size());
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = length + static_cast<int64_t>(i) % n;
  return positions;
}

void TextCache::grow(const Context& ctx, Kept& kept, int64_t positions) const {
  if (positions <= kept.capacity) return;
  int64_t capacity = std::max(kPanel, kept.capacity);
  while (capacity < positions) capacity *= 2;
  const int64_t pairs = rows_ * sizes_.kv_heads;
  const auto larger = [&](const Tensor& old) {
    Tensor wide = ctx.zeros({pairs * capacity, sizes_.size}, type_);
    for (int64_t p = 0; p < pairs && kept.capacity > 0; ++p)
      wide.slice(p * capacity, p * capacity + kept.capacity).copy_from(rows_at(old, p, kept.capacity));
    return wide;
  };
  kept = {larger(kept.keys), larger(kept.values), kept.length, capacity};
}

Tensor TextCache::attend(Context& ctx, int64_t layer, const Tensor& qkv) {
  Kept& kept = layers_.at(static_cast<size_t>(layer));
  const int64_t n = steps(qkv.dim(0));
  const Shape want{rows_ * n, (sizes_.heads + 2 * sizes_.kv_heads) * sizes_.size};
  LMX_CHECK(qkv.shape() == want && qkv.dtype() == type_, describe(qkv), " for texts of ", want);
  LMX_CHECK(n == 1 || kept.length == 0, n, " positions after ", kept.length);
  grow(ctx, kept, kept.length + n);
  const Tensor y = n == 1 ? attend_next(ctx, kept, qkv) : attend_first(ctx, kept, qkv, n);
  kept.length += n;
  return y;
}

Tensor TextCache::attend_next(Context& ctx, Kept& kept, const Tensor& qkv) const {
  Tensor y = ctx.empty({rows_, sizes_.heads * sizes_.size}, type_);
  with_values("attend_text", qkv, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, AttendText<T>{qkv.data<T>(), kept.keys.data<T>(), kept.values.data<T>(), y.data<T>(), rows_,
                                  sizes_.heads, sizes_.kv_heads, sizes_.size, kept.length, kept.capacity});
  });
  return y;
}

Tensor TextCache::attend_first(Context& ctx, Kept& kept, const Tensor& qkv, int64_t n) const {
  with_values("keep_text", qkv, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, KeepText<T>{qkv.data<T>(), kept.keys.data<T>(), kept.values.data<T>(), rows_, sizes_.heads,
                                sizes_.kv_heads, sizes_.size, n, kept.capacity});
  });
  AttentionOptions options;
  options.heads = sizes_.heads;
  options.kv_heads = sizes_.kv_heads;
  options.causal = true;
  return attention(ctx, Var(qkv), Segments::of(std::vector<int64_t>(static_cast<size_t>(rows_), n)), options).value();
}

Tensor TextCache::last(Context& ctx, const Tensor& features) const {
  const int64_t n = steps(features.dim(0));
  if (n == 1) return features;
  Tensor y = ctx.empty({rows_, features.dim(1)}, features.dtype());
  for (int64_t r = 0; r < rows_; ++r) y.slice(r, r + 1).copy_from(features.slice((r + 1) * n - 1, (r + 1) * n));
  return y;
}

int64_t TextCache::steps(int64_t positions) const {
  const int64_t n = rows_ > 0 ? positions / rows_ : 1;
  LMX_CHECK(n > 0 && n * rows_ == positions, positions, " positions of ", rows_, " texts");
  return n;
}

void TextCache::select(Context& ctx, std::span<const int64_t> from) {
  for (const int64_t r : from) LMX_CHECK(r >= 0 && r < rows_, "row ", r, " of ", rows_);
  rows_ = static_cast<int64_t>(from.size());
  for (Kept& kept : layers_) {
    const int64_t block = sizes_.kv_heads * kept.capacity;
    for (Tensor* tensor : {&kept.keys, &kept.values}) {
      const Tensor chosen = ctx.empty({rows_ * block, sizes_.size}, type_);
      for (int64_t r = 0; r < rows_; ++r)
        rows_at(chosen, r, block).copy_from(rows_at(*tensor, from[static_cast<size_t>(r)], block));
      *tensor = chosen;
    }
  }
}

}  // namespace lmx
