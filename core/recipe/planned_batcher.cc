#include "recipe/planned_batcher.h"

#include "lmx/error.h"
#include "lmx/plugin.h"
#include "lmx/tensor.h"

namespace lmx::train {
namespace {

constexpr int64_t kLeast = int64_t{1} << 12, kMost = int64_t{1} << 24;  // tokens of the artificial text

// One sequence a step, from an artificial text of `tokens` tokens, in strings of 64 tokens and sentences of one.
BatcherEnv artificial(int64_t tokens) {
  constexpr int64_t kString = 64, kPairs = 256;
  const auto sentences = TokenArray::of(std::vector<int32_t>(kPairs, Vocabulary::kEos));
  BatcherEnv env{TokenArray::of(std::vector<int32_t>(static_cast<size_t>(tokens), Vocabulary::kEos)), 1, RandomKey(),
                 Allocator::cpu()};
  env.pairs = PairArray(sentences, sentences);
  env.cost =
      env.macs = [](int64_t n, int64_t source, int64_t target) { return static_cast<double>(n * (source + target)); };
  env.strings = TextStrings(TokenArray::of(std::vector<int32_t>(static_cast<size_t>(tokens / kString), kString)));
  return env;
}

}  // namespace

std::unique_ptr<Batcher> planned_batcher(const Node& batcher) {
  const PluginInfo& plugin = Registry::instance().find(PluginKind::batcher, batcher, "batcher");
  for (int64_t tokens = kLeast;; tokens *= 8) {
    try {
      return create<BatcherFactory>(plugin, batcher, "batcher", artificial(tokens));
    } catch (const UserError&) {
      if (tokens * 8 > kMost) throw;
    }
  }
}

}  // namespace lmx::train
