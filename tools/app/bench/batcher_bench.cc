#include "app/bench/batcher_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <vector>

#include "lmx/error.h"
#include "lmx/log.h"
#include "lmx/pair_batches.h"
#include "lmx/plugin.h"
#include "train/pair_costs.h"

namespace lmx::app {

PairArray news_pairs(int64_t n, int64_t vocabulary, uint64_t seed) {
  constexpr int64_t kMost = 119;
  const RandomKey key(seed);
  const auto words = static_cast<uint64_t>(std::max<int64_t>(vocabulary - 2, 1));
  std::vector<int32_t> source, target;
  uint64_t drawn = 0;
  const auto write = [&](std::vector<int32_t>& side, double length) {
    for (int64_t w = std::clamp<int64_t>(std::llround(length), 1, kMost); w > 0; --w)
      side.push_back(static_cast<int32_t>(2 + key.fold("word").below(drawn++, words)));
    side.push_back(Vocabulary::kEos);
  };
  for (uint64_t i = 0; i < static_cast<uint64_t>(n); ++i) {
    const double length = std::exp(std::log(22.0) + 0.6 * key.fold("target").normal(i));
    write(target, length);
    write(source, length * std::exp(0.2 * key.fold("ratio").normal(i)));
  }
  return {TokenArray::of(std::move(source)), TokenArray::of(std::move(target))};
}

namespace {

// A model with initial parameters, and its cost table.
struct Timed {
  Timed(Context& c, const std::string& batcher, const BatcherBenchOptions& o)
      : ctx(c), name(batcher), vocabulary(o.vocabulary) {
    Recipe recipe;
    recipe.model = o.model;
    recipe.loss = parse_yaml("{name: full_softmax, bias: false, label_smoothing: 0.1}", "loss");
    network = make_network(recipe, o.vocabulary, nullptr);
    if (!network.model->translates())
      throw UserError(
          str("[bench] the model ", to_json(o.model), " does not translate; sub-batches are of parallel text"));
    add_parameters(ctx, params, network, 1);
  }
  // Returns the quickest pass of each batch. Passes alternate between batches, so that changes of the machine's speed
  // affect all of them equally.
  std::vector<double> seconds(const std::vector<Batch>& batches, int64_t repeats, int64_t step) {
    std::vector<double> best(batches.size(), INFINITY);
    for (int64_t repeat = 0; repeat < repeats; ++repeat)
      for (size_t i = 0; i < batches.size(); ++i) {
        best[i] = std::min(best[i], time_pairs(ctx, network, params, batches[i], 1));
        show(str("step ", step, ", sub-batch ", i + 1, " of ", batches.size(), ", pass ", repeat + 1, " of ", repeats));
      }
    return best;
  }
  void show(const std::string& what) const { progress_line(str("[bench] ", name, ": ", what)); }
  double cost(int64_t sentences, int64_t source, int64_t target) { return costs.seconds(sentences, source, target); }
  double macs(int64_t sentences, int64_t source, int64_t target) const {
    return macs_of_pairs(network, sentences, source, target);
  }

  Context& ctx;
  std::string name;  // of the batcher
  int64_t vocabulary, measured = 0;
  Network network;
  ParameterStore params;
  PairCosts costs{[this](const PairCosts::Shape3& shape, int64_t repeats) {
    show(str(++measured, " times of sub-batches measured for its table"));
    return measure_pairs(ctx, network, params, vocabulary, shape, repeats);
  }};
};

// Counts sentences and tokens in the epoch's sub-batches.
void count_epoch(const Batcher& batcher, int64_t ranks, BatcherBench& result) {
  int64_t sentences = 0, target = 0, padded = 0, tokens = 0;
  for (int64_t step = 0; step < batcher.steps_per_epoch(); ++step)
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const PairShape shape = shape_of(batcher.batch(step, rank, 1));
      result.sub_batches += shape.sentences > 0 ? 1 : 0;
      sentences += shape.sentences;
      target += shape.target;
      padded += shape.padded();
      tokens += shape.tokens();
    }
  const auto n = static_cast<double>(result.sub_batches);
  result.sentences = static_cast<double>(sentences) / n;
  result.target_tokens = static_cast<double>(target) / n;
  result.padding = 1 - static_cast<double>(tokens) / static_cast<double>(padded);
}

void time_steps(const Batcher& batcher, Timed& timed, const BatcherBenchOptions& o, BatcherBench& result) {
  double sum = 0, spread = 0, slowest = 0;
  int64_t tokens = 0;
  // The last step of the epoch may have too few sub-batches, so it is not timed.
  for (; result.timed < std::min(o.steps, batcher.steps_per_epoch() - 1); ++result.timed) {
    std::vector<Batch> batches;
    for (int64_t rank = 0; rank < o.ranks; ++rank) {
      batches.push_back(batcher.batch(result.timed, rank, 1));
      tokens += batches.back().tokens();
    }
    const std::vector<double> seconds = timed.seconds(batches, o.repeats, result.timed + 1);
    const double most = *std::max_element(seconds.begin(), seconds.end());
    const double mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(o.ranks);
    spread += (most - mean) / mean;
    sum += mean;
    slowest += most;
  }
  if (result.timed == 0)
    throw UserError(str("[bench] ", o.pairs, " pairs make less than two steps of ", o.ranks, " sub-batches of ",
                        o.max_tokens, " tokens; take more pairs"));
  const auto steps = static_cast<double>(result.timed);
  result.mean_s = sum / steps;
  result.spread = spread / steps;
  result.tokens_per_s = static_cast<double>(tokens) / slowest;
}

}  // namespace

BatcherBench bench_batcher(Context& ctx, const std::string& name, const BatcherBenchOptions& o) {
  if (std::min({o.pairs, o.ranks, o.steps, o.repeats, o.max_tokens}) < 1)
    throw UserError(str("[bench] pairs ", o.pairs, ", ranks ", o.ranks, ", steps ", o.steps, ", repeats ", o.repeats,
                        " and tokens ", o.max_tokens, " must be at least 1"));
  using Clock = std::chrono::steady_clock;
  Timed timed(ctx, name, o);
  BatcherEnv env{TokenArray(), o.ranks, RandomKey(o.seed).fold("batcher"), ctx.host, "train"};
  env.pairs = news_pairs(o.pairs, o.vocabulary, o.seed);
  env.cost = [&](int64_t n, int64_t s, int64_t t) { return timed.cost(n, s, t); };
  env.macs = [&](int64_t n, int64_t s, int64_t t) { return timed.macs(n, s, t); };
  const Node node = parse_yaml(str("{name: ", name, ", max_tokens: ", o.max_tokens, "}"), "batcher");
  const auto begin = Clock::now();
  const auto make = [&] {
    return create<BatcherFactory>(Registry::instance().find(PluginKind::batcher, node, "batcher"), node, "batcher",
                                  env);
  };
  auto batcher = make();
  if (timed.costs.settle()) batcher = make();
  BatcherBench result;
  result.table = timed.costs.size();
  if (result.table > 0) result.table_s = std::chrono::duration<double>(Clock::now() - begin).count();
  count_epoch(*batcher, o.ranks, result);
  time_steps(*batcher, timed, o, result);
  progress_line("");
  return result;
}

}  // namespace lmx::app
