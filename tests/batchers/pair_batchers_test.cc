// The batchers of parallel text: every sentence once per epoch, within the token budget, on any number of ranks.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "lmx/pair_batches.h"
#include "lmx/plugin.h"
#include "test.h"
#include "vector_of.h"

namespace lmx {
namespace {

using namespace lmx_test;

// n pairs whose lengths are about log-normal with median 22, like subwords of news sentences. </s> is counted, and no
// length is above `most`. The words of a sentence identify its number.
PairArray news(int64_t n, int64_t most = 120, uint64_t seed = 3) {
  const RandomKey key(seed);
  std::vector<int32_t> source, target;
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<uint64_t>(i);
    const double words = std::exp(std::log(22.0) + 0.6 * key.fold("target").normal(at));
    const double ratio = std::exp(0.2 * key.fold("ratio").normal(at));
    const auto length = [&](double x) { return std::clamp<int64_t>(std::llround(x), 1, most - 1); };
    target.insert(target.end(), static_cast<size_t>(length(words)), static_cast<int32_t>(i + 2));
    target.push_back(Vocabulary::kEos);
    source.insert(source.end(), static_cast<size_t>(length(words * ratio)), static_cast<int32_t>(i + 2));
    source.push_back(Vocabulary::kEos);
  }
  return {TokenArray::of(std::move(source)), TokenArray::of(std::move(target))};
}

// Quadratic in length, like attention.
double model_cost(int64_t sentences, int64_t source, int64_t target) {
  const auto s = static_cast<double>(source), t = static_cast<double>(target);
  return static_cast<double>(sentences) * (s + 1.5 * t + 0.01 * (s * s + t * t + s * t)) + 40;
}

std::unique_ptr<Batcher> make(const std::string& yaml, const PairArray& pairs, int64_t global_batch, uint64_t seed = 1,
                              const std::vector<PairPart>& parts = {}) {
  static const bool loaded = [] {
    Registry::instance().add_directory(lmx_test::build_path("/lib/lmx/plugins/batcher"));
    return true;
  }();
  EXPECT_TRUE(loaded);
  const Node node = parse_yaml(yaml, "recipe.yaml");
  const PluginInfo& info = Registry::instance().find(PluginKind::batcher, node, "batcher");
  BatcherEnv env{TokenArray(), global_batch, RandomKey(seed), Allocator::cpu(), "train"};
  env.pairs = pairs;
  env.parts = parts;
  env.cost = model_cost;
  env.macs = [](int64_t n, int64_t s, int64_t t) { return model_cost(n, s, t); };
  return create<BatcherFactory>(info, node, "batcher", env);
}

std::string error_of(const std::string& yaml, const PairArray& pairs) {
  return lmx_test::user_error([&] { make(yaml, pairs, 4); });
}

class EveryPairBatcher : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(PairBatchers, EveryPairBatcher,
                         testing::Values("{name: token_budget, max_tokens: 400}", "{name: same_shape, max_tokens: 400}",
                                         "{name: time_balanced, max_tokens: 400}",
                                         "{name: time_balanced, max_tokens: 400, cost: flops, percentile: 50}"));

TEST_P(EveryPairBatcher, EachSentenceOnceAnEpochOnAnyNumberOfRanks) {
  const PairArray pairs = news(1500);
  for (const int64_t global : {1, 3, 8, 64}) {
    const auto batcher = make(GetParam(), pairs, global);
    EXPECT_EQ(batcher->sequence_length(), 0);
    EXPECT_FALSE(batcher->carries_state());
    const int64_t steps = batcher->steps_per_epoch();
    std::vector<std::vector<int64_t>> epochs;
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      std::vector<int> seen(1500);
      epochs.emplace_back();
      for (int64_t step = epoch * steps; step < (epoch + 1) * steps; ++step) {
        StepSize size;
        for (int64_t item = 0; item < global; ++item) {
          const Batch batch = batcher->batch(step, item, 1);
          size.tokens += batch.tokens();
          size.sequences += batch.sequences();
          for (const int64_t slot : batch.slots) ++seen[static_cast<size_t>(slot)];
          epochs.back().insert(epochs.back().end(), batch.slots.begin(), batch.slots.end());
        }
        EXPECT_GT(size.tokens, 0);
        EXPECT_EQ(batcher->step_size(step).tokens, size.tokens);
        EXPECT_EQ(batcher->step_size(step).sequences, size.sequences);
      }
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 1500);
    }
    if (steps > 3) {
      EXPECT_NE(epochs[0], epochs[1]);
    }
  }
}

// The decoder's input is </s> and the tokens before the target.
TEST_P(EveryPairBatcher, SentencesLieOneAfterTheOther) {
  const PairArray pairs = news(300);
  const auto batcher = make(GetParam(), pairs, 2);
  const Batch batch = batcher->batch(1, 1, 1);
  ASSERT_EQ(batch.lengths.size(), batch.slots.size());
  ASSERT_EQ(batch.source_lengths.size(), batch.slots.size());
  EXPECT_EQ(std::count(batch.fresh.begin(), batch.fresh.end(), 1), batch.sequences());
  const auto inputs = vector_of<int32_t>(batch.inputs), targets = vector_of<int32_t>(batch.targets),
             source = vector_of<int32_t>(batch.source);
  size_t t = 0, s = 0;
  for (size_t b = 0; b < batch.slots.size(); ++b) {
    const auto to = pairs.target(batch.slots[b]), from = pairs.source(batch.slots[b]);
    ASSERT_EQ(batch.lengths[b], static_cast<int64_t>(to.size()));
    ASSERT_EQ(batch.source_lengths[b], static_cast<int64_t>(from.size()));
    for (size_t i = 0; i < to.size(); ++i, ++t) {
      EXPECT_EQ(targets[t], to[i]);
      EXPECT_EQ(inputs[t], i ? to[i - 1] : Vocabulary::kEos);
    }
    for (size_t i = 0; i < from.size(); ++i, ++s) EXPECT_EQ(source[s], from[i]);
  }
  EXPECT_EQ(t, inputs.size());
  EXPECT_EQ(s, source.size());
}

TEST_P(EveryPairBatcher, PureFunctionOfSeedAndStep) {
  const PairArray pairs = news(500);
  const auto one = make(GetParam(), pairs, 4), two = make(GetParam(), pairs, 4), other = make(GetParam(), pairs, 4, 2);
  EXPECT_EQ(one->batch(17, 3, 1).slots, two->batch(17, 3, 1).slots);
  EXPECT_EQ(one->batch(2, 0, 1).slots, two->batch(2, 0, 1).slots);  // also after a later step
  bool same = true;
  for (int64_t step = 0; step < 4; ++step)
    same = same && one->batch(step, 0, 1).slots == other->batch(step, 0, 1).slots;
  EXPECT_FALSE(same);
}

TEST_P(EveryPairBatcher, OneLanguageAndLongSentencesAreNamed) {
  EXPECT_THAT(error_of(GetParam(), PairArray()), Names("pairs", "train split", "plugins list"));
  std::vector<int32_t> source{5, 1, 5, 1}, target{7, 1};
  target.insert(target.end(), 400, 8);
  target.push_back(1);
  const PairArray pairs(TokenArray::of(source), TokenArray::of(target));
  EXPECT_THAT(error_of(GetParam(), pairs),
              Names("sentence 2", "train split", "401 target tokens", "max_tokens, 400", "too_long=skip"));
  const std::string skips = std::string(GetParam()).insert(std::string(GetParam()).size() - 1, ", too_long: skip");
  const auto batcher = make(skips, pairs, 1);
  EXPECT_EQ(batcher->batch(0, 0, 1).slots, std::vector<int64_t>{0});
  EXPECT_THAT(batcher->describe(), testing::Contains(Names("1 of 2 sentences")));
  const PairArray all(TokenArray::of({5, 1}), TokenArray::of(std::vector<int32_t>(target.begin() + 2, target.end())));
  EXPECT_THAT(error_of(skips, all), Names("every sentence", "train split"));
}

// Pairs 0 to 399 are clean, and an epoch reads each of them once; pairs 400 to 1499 are the crawl.
std::vector<PairPart> clean_and_crawl(int64_t draws) {
  return {{"clean", 0, 400, 400}, {"crawl", 400, 1100, draws}};
}

// Returns how often each pair is read in epochs [first, last).
std::vector<int> reads(const Batcher& batcher, int64_t global, int64_t first, int64_t last) {
  std::vector<int> seen(1500);
  for (int64_t step = first * batcher.steps_per_epoch(); step < last * batcher.steps_per_epoch(); ++step)
    for (int64_t item = 0; item < global; ++item)
      for (const int64_t slot : batcher.batch(step, item, 1).slots) ++seen[static_cast<size_t>(slot)];
  return seen;
}

TEST_P(EveryPairBatcher, AnEpochReadsTheDefiningPartOnceAndTheOthersByTheirRatio) {
  const PairArray pairs = news(1500);
  for (const double ratio : {0.25, 1.0, 4.0}) {  // 100, 400 and 1600 pairs of the crawl per epoch
    for (const int64_t global : {1, 2}) {
      const auto draws = static_cast<int64_t>(400 * ratio);
      const auto batcher = make(GetParam(), pairs, global, 1, clean_and_crawl(draws));
      EXPECT_THAT(batcher->describe(), testing::Contains(HasSubstr("part crawl: 1100 sentences")));
      double drawn = 0;
      const int64_t epochs = 12;
      for (int64_t epoch = 0; epoch < epochs; ++epoch) {
        const std::vector<int> seen = reads(*batcher, global, epoch, epoch + 1);
        EXPECT_EQ(std::count(seen.begin(), seen.begin() + 400, 1), 400) << epoch;
        drawn += std::accumulate(seen.begin() + 400, seen.end(), 0.0);
      }
      // An epoch has whole sub-batches (same_shape: whole steps) of unequal numbers of sentences, about 15 each.
      EXPECT_NEAR(drawn / static_cast<double>(epochs), static_cast<double>(draws), 50) << GetParam() << ratio;
      // A pair of the crawl is read again only after all others have been read.
      const std::vector<int> all = reads(*batcher, global, 0, epochs);
      const auto [least, most] = std::minmax_element(all.begin() + 400, all.end());
      EXPECT_LE(*most - *least, 1) << GetParam() << ratio;
    }
  }
}

TEST_P(EveryPairBatcher, AMixIsAPureFunctionOfSeedAndStepAndItsSubBatchesAreOfOnePart) {
  const PairArray pairs = news(1500);
  const auto parts = clean_and_crawl(400);
  const auto one = make(GetParam(), pairs, 4, 1, parts), two = make(GetParam(), pairs, 4, 1, parts);
  bool differs = false;
  for (const int64_t step : {40, 3, 11, 0}) {  // in any order
    for (int64_t item = 0; item < 4; ++item) {
      const auto slots = one->batch(step, item, 1).slots;
      EXPECT_EQ(slots, two->batch(step, item, 1).slots);
      differs = differs || slots != make(GetParam(), pairs, 4, 2, parts)->batch(step, item, 1).slots;
      const auto crawl = std::count_if(slots.begin(), slots.end(), [](int64_t s) { return s >= 400; });
      EXPECT_TRUE(crawl == 0 || crawl == static_cast<int64_t>(slots.size()));
    }
  }
  EXPECT_TRUE(differs);
}

// Mixing does not change the batches of a text with one part.
TEST_P(EveryPairBatcher, OnePartAloneIsTheTextWithoutParts) {
  const PairArray pairs = news(1500);
  const auto plain = make(GetParam(), pairs, 4), part = make(GetParam(), pairs, 4, 1, {{"main", 0, 1500, 1500}});
  ASSERT_EQ(plain->steps_per_epoch(), part->steps_per_epoch());
  for (int64_t step = 0; step < 2 * plain->steps_per_epoch(); ++step)
    for (int64_t item = 0; item < 4; ++item)
      EXPECT_EQ(plain->batch(step, item, 1).slots, part->batch(step, item, 1).slots);
}

TEST(TokenBudget, FillsItAndKeepsPaddingBelowFivePercent) {
  const PairArray pairs = news(200'000);
  const auto batcher = make("{name: token_budget, max_tokens: 3584}", pairs, 1);
  int64_t padded = 0, tokens = 0, groups = 0, full = 0;
  for (int64_t step = 0; step < batcher->steps_per_epoch(); ++step) {
    const PairShape shape = shape_of(batcher->batch(step, 0, 1));
    EXPECT_LE(shape.target, 3584);
    full += shape.target > 3584 - 120 ? 1 : 0;
    ++groups;
    padded += shape.padded();
    tokens += shape.tokens();
  }
  EXPECT_GE(full, groups - 1);  // all except the last one
  EXPECT_LT(1 - static_cast<double>(tokens) / static_cast<double>(padded), 0.05);
  EXPECT_THAT(batcher->describe()[0], Names("sub-batches", "padding"));
}

// The cost of the batch without padding.
double real_cost(const Batch& batch) {
  double sum = model_cost(0, 1, 1);
  for (size_t b = 0; b < batch.lengths.size(); ++b)
    sum += model_cost(1, batch.source_lengths[b], batch.lengths[b]) - model_cost(0, 1, 1);
  return sum;
}

double spread_of(const Batcher& batcher, int64_t ranks) {
  double sum = 0;
  const int64_t steps = batcher.steps_per_epoch() - 1;  // the last step may have fewer items
  for (int64_t step = 0; step < steps; ++step) {
    double most = 0, total = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const double cost = real_cost(batcher.batch(step, rank, 1));
      most = std::max(most, cost);
      total += cost / static_cast<double>(ranks);
    }
    sum += (most - total) / total;
  }
  return sum / static_cast<double>(steps);
}

// Costs are computed for each sentence, but the batcher uses mean lengths. With measured times the result depends on
// the table's accuracy.
TEST(TimeBalanced, SpreadIsAtMostAQuarterOfTokenBudgets) {
  const PairArray pairs = news(20'000);
  const auto tokens = make("{name: token_budget, max_tokens: 2000}", pairs, 8);
  const auto time = make("{name: time_balanced, max_tokens: 2000}", pairs, 8);
  EXPECT_LT(spread_of(*time, 8), 0.25 * spread_of(*tokens, 8));
}

TEST(TimeBalanced, CostIsOfMeanLengthsAndLinearBetweenThem) {
  const BatcherEnv::Cost cost = [](int64_t n, int64_t s, int64_t t) {
    return static_cast<double>(n * (s + 3 * t) + 7);
  };
  PairShape shape;
  shape.sentences = 4;
  shape.source = 4 * 9 + 1;
  shape.target = 4 * 5 + 3;
  EXPECT_DOUBLE_EQ(cost_of(shape, cost), static_cast<double>(shape.source + 3 * shape.target + 7));
}

// A run ends where the next sentence would cost too much, independent of where the search starts.
TEST(TimeBalanced, RunsAreAsLongAsTheyMayBe) {
  const PairArray pairs = news(700);
  std::vector<int64_t> order(700);
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);  // lengths jump
  const BatcherEnv::Cost cost = model_cost;
  for (const double most : {1.0, 300.0, 4000.0, 1e9}) {
    const PairGroups groups = cut_by_cost(pairs, order, cost, most, 500);
    EXPECT_EQ(groups.pairs, order);
    for (int64_t g = 0; g < groups.count(); ++g) {
      const auto group = groups.group(g);
      const bool alone = group.size() == 1;
      EXPECT_TRUE(alone || cost_of(shape_of(pairs, group), cost) <= most) << g;
      if (g + 1 == groups.count()) continue;
      const auto more =
          std::span(order).subspan(static_cast<size_t>(group.data() - groups.pairs.data()), group.size() + 1);
      EXPECT_GT(cost_of(shape_of(pairs, more), cost), most) << g;
    }
  }
}

TEST(SameShape, SubBatchesOfAStepAreAlike) {
  const PairArray pairs = news(20'000);
  const auto batcher = make("{name: same_shape, max_tokens: 2000}", pairs, 8);
  std::map<int64_t, int> uneven;
  for (int64_t step = 0; step < batcher->steps_per_epoch(); ++step) {
    int64_t least = 1 << 30, most = 0, longest = 0;
    for (int64_t rank = 0; rank < 8; ++rank) {
      const PairShape shape = shape_of(batcher->batch(step, rank, 1));
      least = std::min(least, shape.sentences);
      most = std::max(most, shape.sentences);
      longest = std::max(longest, shape.longest_target);
    }
    EXPECT_LE(most * longest, 2000);
    EXPECT_LE(most - least, 1);
    ++uneven[most - least];
  }
  EXPECT_LE(uneven[1], 1);  // the epoch's last sentences
}

TEST(PairBatchers, ConfigErrors) {
  const PairArray pairs = news(10);
  EXPECT_THAT(error_of("{name: token_budget, max_tokens: 0}", pairs), Names("max_tokens"));
  EXPECT_THAT(error_of("{name: token_budget, max_token: 5}", pairs), Names("'max_tokens'?"));
  EXPECT_THAT(error_of("{name: token_budget, too_long: cut}", pairs), Names("too_long"));
  EXPECT_THAT(error_of("{name: time_balanced, percentile: 101}", pairs), Names("percentile"));
  EXPECT_THAT(error_of("{name: time_balanced, cost: guess}", pairs), Names("cost"));
}

}  // namespace
}  // namespace lmx
