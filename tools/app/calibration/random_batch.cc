#include "app/calibration/random_batch.h"

#include <algorithm>
#include <numeric>

#include "data/drawn_text.h"
#include "lmx/pair_batches.h"

namespace lmx::plan {
namespace {

constexpr int64_t kUploaded = int64_t{1} << 20;  // floats that the host makes for a device

TokenArray sentences(uint64_t seed, int64_t number, int64_t vocabulary) {
  std::vector<int32_t> ids = data::drawn_words(seed, number * kSentence, vocabulary);
  for (size_t i = 0; i < ids.size(); ++i)  // each sentence ends once
    ids[i] = (i + 1) % static_cast<size_t>(kSentence) == 0 ? Vocabulary::kEos : std::max(ids[i], Vocabulary::kEos + 1);
  return TokenArray::of(std::move(ids));
}

}  // namespace

Batch random_batch(const Outline& outline, int64_t tokens, uint64_t seed) {
  const Shares& s = outline.shares;
  if (s.pairs) {
    const int64_t number = std::max<int64_t>(1, tokens / kSentence);
    std::vector<int64_t> all(static_cast<size_t>(number));
    std::iota(all.begin(), all.end(), 0);
    return make_pair_batch(PairArray(sentences(seed, number, s.vocab), sentences(seed + 1, number, s.vocab)), all,
                           Allocator::cpu());
  }
  Batch batch;
  const int64_t sequences = std::max<int64_t>(1, tokens / s.length);
  const auto words = [&](uint64_t part) {
    return Tensor::from<int32_t>(Allocator::cpu(), {sequences, s.length},
                                 data::drawn_words(seed + part, sequences * s.length, s.vocab));
  };
  batch.inputs = words(0);
  batch.targets = words(1);
  batch.slots.resize(static_cast<size_t>(sequences));
  std::iota(batch.slots.begin(), batch.slots.end(), 0);
  batch.fresh.assign(static_cast<size_t>(sequences), 1);
  return batch;
}

Tensor noise(Context& ctx, const Shape& shape, float start, MemClass c) {
  Tensor t = ctx.empty(shape, DType::f32, c);
  const bool device = ctx.device.kind != Device::Kind::cpu;
  const int64_t some = device ? std::min(t.numel(), kUploaded) : t.numel();
  Tensor values = device ? Tensor::empty(ctx.host, {some}, DType::f32) : t;
  float x = start;
  for (float& v : values.values<float>()) v = x = x > 0.5F ? x - 0.93F : x + 0.013F;
  if (!device) return t;
  Tensor flat = t.reshape({t.numel()});
  Tensor first = flat.slice(0, some);
  first.copy_from(ctx.upload(values));
  for (int64_t begin = some; begin < t.numel(); begin += some) {  // they repeat
    const int64_t size = std::min(some, t.numel() - begin);
    Tensor part = flat.slice(begin, begin + size);
    part.copy_from(flat.slice(0, size));
  }
  return t;
}

}  // namespace lmx::plan
