// The sub-batches of all ranks in a step have the same shape: sentences x longest source x longest target (Ott et al.
// 2018, section 5; the paper finds that it trains badly, because a step then sees sentences of one length only).
//
// Sentences, sorted by length, are divided into steps. The sentences of a step are distributed over its sub-batches in
// turn; each sub-batch gets as many as the budget allows for the step's longest target. If the last sentences of an
// epoch do not suffice, some sub-batches of its last step have one sentence less.
#include <algorithm>

#include "lmx/pair_batches.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

struct SameShapeConfig : PairLimit {
  void fields(Fields& f) {
    PairLimit::fields(f, "target tokens of a sub-batch at most, were all as long as the longest of the step");
  }
};

// Number of sentences of each sub-batch in the step that begins at order[first].
int64_t sentences_of(const PairArray& pairs, std::span<const int64_t> order, size_t first, int64_t groups,
                     int64_t max_tokens) {
  int64_t n = 0;
  for (;;) {  // targets ascend, so the last one of the step is its longest
    const size_t last = std::min(order.size(), first + static_cast<size_t>((n + 1) * groups)) - 1;
    const auto longest = static_cast<int64_t>(pairs.target(order[last]).size());
    if (n > 0 && (n + 1) * longest > max_tokens) return n;
    ++n;
    if (first + static_cast<size_t>(n * groups) >= order.size()) return n;
  }
}

PairGroups deal(const PairArray& pairs, std::span<const int64_t> order, int64_t groups, int64_t max_tokens) {
  PairGroups out;
  const auto width = static_cast<size_t>(groups);
  for (size_t first = 0; first < order.size();) {
    const auto step = width * static_cast<size_t>(sentences_of(pairs, order, first, groups, max_tokens));
    const size_t end = std::min(order.size(), first + step);
    for (size_t g = 0; g < width; ++g) {
      for (size_t i = first + g; i < end; i += width) out.pairs.push_back(order[i]);
      out.close();
    }
    first = end;
  }
  return out;
}

std::unique_ptr<Batcher> make_same_shape(const Node& config, const std::string& path, const BatcherEnv& env) {
  const auto c = read_config<SameShapeConfig>(config, path);
  int64_t skipped = 0;
  const std::vector<int64_t> order = pairs_by_length(env, c, "same_shape", path, skipped);
  const auto cut = [&](std::span<const int64_t> part) { return deal(env.pairs, part, env.global_batch, c.max_tokens); };
  return std::make_unique<PairBatcher>(
      env, cut_parts(env, order, cut),
      PairBatcher::Options{.max_tokens = c.max_tokens, .bundle = env.global_batch, .skipped = skipped});
}

}  // namespace

LMX_PLUGIN(batcher, same_shape, SameShapeConfig, make_same_shape)
