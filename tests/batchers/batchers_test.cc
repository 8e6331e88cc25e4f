// The batcher plugins, loaded in the same way as by a run.
#include <map>
#include <numeric>
#include <set>

#include "lmx/batcher.h"
#include "lmx/error.h"
#include "lmx/plugin.h"
#include "test.h"
#include "vector_of.h"

namespace lmx {
namespace {

using namespace lmx_test;

TokenArray counting(int64_t n) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return TokenArray::of(std::move(tokens));
}

std::unique_ptr<Batcher> make(const std::string& yaml, int64_t tokens, int64_t global_batch, uint64_t seed = 1) {
  static const bool loaded = [] {
    Registry::instance().add_directory(lmx_test::build_path("/lib/lmx/plugins/batcher"));
    return true;
  }();
  EXPECT_TRUE(loaded);
  const Node node = parse_yaml(yaml, "recipe.yaml");
  const PluginInfo& info = Registry::instance().find(PluginKind::batcher, node, "batcher");
  const BatcherEnv env{counting(tokens), global_batch, RandomKey(seed), Allocator::cpu(), "train"};
  return create<BatcherFactory>(info, node, "batcher", env);
}

// Strings of 1 to 13 tokens. Each token is one more than the previous one, so that it identifies its position.
struct Strings {
  TokenArray tokens;
  TextStrings strings;
};
Strings strings(int32_t count) {
  std::vector<int32_t> tokens, lengths;
  for (int32_t i = 0; i < count; ++i) {
    lengths.push_back(1 + i * 7 % 13);
    for (int32_t k = 0; k < lengths.back(); ++k) tokens.push_back(16 * i + k);
  }
  return {TokenArray::of(std::move(tokens)), TextStrings(TokenArray::of(std::move(lengths)))};
}

std::unique_ptr<Batcher> make_shards(const std::string& yaml, int32_t count, int64_t global_batch, uint64_t seed = 1) {
  static_cast<void>(make("{name: tbptt}", 100, 1));  // loads the plugins
  const Node node = parse_yaml(yaml, "recipe.yaml");
  const PluginInfo& info = Registry::instance().find(PluginKind::batcher, node, "batcher");
  const Strings text = strings(count);
  BatcherEnv env{text.tokens, global_batch, RandomKey(seed), Allocator::cpu(), "train"};
  env.strings = text.strings;
  return create<BatcherFactory>(info, node, "batcher", env);
}

std::string error_of(const std::string& yaml, int64_t tokens, int64_t global_batch) {
  return lmx_test::user_error([&] { make(yaml, tokens, global_batch); });
}

class EveryBatcher : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Batchers, EveryBatcher,
                         testing::Values("{name: tbptt, sequence_length: 7}",
                                         "{name: random_windows, sequence_length: 7}",
                                         "{name: random_windows, sequence_length: 7, replacement: true}",
                                         "{name: packed_windows, sequence_length: 7}",
                                         "{name: packed_windows, sequence_length: 7, documents: separate}",
                                         "{name: packed_windows, sequence_length: 7, shuffle: false}"));

TEST_P(EveryBatcher, TargetsFollowInputs) {
  const auto batcher = make(GetParam(), 1000, 12);
  EXPECT_EQ(batcher->sequence_length(), 7);
  for (int64_t step = 0; step < 3 * batcher->steps_per_epoch(); ++step) {
    const Batch batch = batcher->batch(step, 0, 12);
    ASSERT_EQ(batch.inputs.shape(), (Shape{12, 7}));
    ASSERT_EQ(batch.targets.shape(), (Shape{12, 7}));
    const auto inputs = vector_of<int32_t>(batch.inputs), targets = vector_of<int32_t>(batch.targets);
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(targets[i], inputs[i] + 1);
      if (i % 7) {
        EXPECT_EQ(inputs[i], inputs[i - 1] + 1);
      }
    }
  }
}

// The sequences of a rank do not depend on the number of ranks.
TEST_P(EveryBatcher, SlicesMakeUpTheGlobalBatch) {
  const auto batcher = make(GetParam(), 1000, 12);
  for (const int64_t step : {0, 1, 5, 40}) {
    const Batch whole = batcher->batch(step, 0, 12);
    for (const int64_t part : {1, 5, 12}) {
      std::vector<int32_t> inputs;
      std::vector<int64_t> slots;
      std::vector<uint8_t> fresh;
      for (int64_t first = 0; first < 12; first += part) {
        const Batch slice = batcher->batch(step, first, std::min<int64_t>(part, 12 - first));
        const auto v = vector_of<int32_t>(slice.inputs);
        inputs.insert(inputs.end(), v.begin(), v.end());
        slots.insert(slots.end(), slice.slots.begin(), slice.slots.end());
        fresh.insert(fresh.end(), slice.fresh.begin(), slice.fresh.end());
      }
      EXPECT_EQ(inputs, vector_of<int32_t>(whole.inputs));
      EXPECT_EQ(slots, whole.slots);
      EXPECT_EQ(fresh, whole.fresh);
    }
  }
}

TEST_P(EveryBatcher, PureFunctionOfSeedAndStep) {
  const auto one = make(GetParam(), 1000, 12), two = make(GetParam(), 1000, 12);
  EXPECT_EQ(vector_of<int32_t>(one->batch(37, 0, 12).inputs), vector_of<int32_t>(two->batch(37, 0, 12).inputs));
  EXPECT_EQ(vector_of<int32_t>(one->batch(2, 0, 12).inputs),
            vector_of<int32_t>(one->batch(2, 0, 12).inputs));  // also after a later step
}

TEST_P(EveryBatcher, SmallestText) {
  const auto batcher = make(GetParam(), 12 * 7 + 1, 12);
  EXPECT_EQ(batcher->steps_per_epoch(), 1);
  for (int64_t step = 0; step < 3; ++step) EXPECT_EQ(batcher->batch(step, 0, 12).tokens(), 84);
}

TEST_P(EveryBatcher, ShortTextsAreNamed) {
  const std::string config = GetParam(), name = '[' + config.substr(7, config.find(',') - 7) + ']';
  EXPECT_THAT(error_of(GetParam(), 12 * 7, 12),
              Names(name, "85 tokens", "84", "batcher.sequence_length", "batch.global"));
  EXPECT_THAT(error_of(GetParam(), 7, 1), Names("sequence_length 7", "train split", "7 tokens", "takes 8"));
  EXPECT_THAT(error_of(GetParam(), 1, 1), Names("1 tokens"));
  EXPECT_THAT(error_of(GetParam(), 0, 1), Names("0 tokens"));
}

TEST(Tbptt, SlotsAreContiguousAndCarryState) {
  const auto batcher = make("{name: tbptt, sequence_length: 10}", 4 * 25 + 1, 4);
  EXPECT_TRUE(batcher->carries_state());
  EXPECT_EQ(batcher->steps_per_epoch(), 2);  // 25 inputs per slot: two windows, five are dropped
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    for (int64_t window = 0; window < 2; ++window) {
      const Batch batch = batcher->batch(2 * epoch + window, 0, 4);
      for (int64_t slot = 0; slot < 4; ++slot) {
        EXPECT_EQ(vector_of<int32_t>(batch.inputs)[static_cast<size_t>(10 * slot)], 25 * slot + 10 * window);
        EXPECT_EQ(batch.slots[static_cast<size_t>(slot)], slot);
        EXPECT_EQ(batch.fresh[static_cast<size_t>(slot)], window == 0);
      }
    }
  }
}

// The data that slot `slot` reads in steps [first, first + count): the inputs of each step, and the step's last target.
struct Reading {
  std::vector<std::vector<int32_t>> inputs;
  std::vector<int32_t> next;
  std::vector<bool> fresh;
};
Reading read_slot(const Batcher& batcher, int64_t slot, int64_t first, int64_t count) {
  Reading r;
  for (int64_t step = first; step < first + count; ++step) {
    const Batch batch = batcher.batch(step, slot, 1);
    r.inputs.push_back(vector_of<int32_t>(batch.inputs));
    r.next.push_back(vector_of<int32_t>(batch.targets).back());
    r.fresh.push_back(batch.fresh[0] == 1);
  }
  return r;
}

// Puri 2018: slot j of a step continues slot j of the previous step. A shard begins with a zero state, at the beginning
// of a string. For every batch size, each shard is read equally often.
TEST(TbpttShards, SlotsContinueAndShardsBeginFresh) {
  for (const int64_t global : {4, 6, 10, 16}) {
    const auto batcher = make_shards("{name: tbptt, sequence_length: 10, shards: 10}", 400, global);
    EXPECT_TRUE(batcher->carries_state());
    const int64_t shards = std::max<int64_t>(10, global), text = strings(400).tokens.size();
    const int64_t windows = (batcher->steps_per_epoch() * global + shards - 1) / shards;
    EXPECT_NEAR(static_cast<double>(windows), static_cast<double>(text / shards) / 10, 2.5);
    std::map<int32_t, int> begins;  // first token of a shard -> number of times it was read
    const int64_t rounds = shards;  // enough rounds that every slot has read the same number of shards
    for (int64_t slot = 0; slot < global; ++slot) {
      const Reading r = read_slot(*batcher, slot, 0, rounds * windows);
      for (int64_t i = 0; i < rounds * windows; ++i) {
        const auto at = static_cast<size_t>(i);
        EXPECT_EQ(r.fresh[at], i % windows == 0) << "slot " << slot << " step " << i;
        if (r.fresh[at]) {
          ++begins[r.inputs[at][0]];
          EXPECT_EQ(r.inputs[at][0] % 16, 0) << "a shard begins in the middle of a string";
        } else {
          EXPECT_EQ(r.inputs[at][0], r.next[at - 1]) << "slot " << slot << " step " << i;
        }
        for (size_t k = 1; k < r.inputs[at].size(); ++k)
          EXPECT_TRUE(r.inputs[at][k] % 16 == 0 || r.inputs[at][k] == r.inputs[at][k - 1] + 1) << "a string is split";
      }
    }
    EXPECT_EQ(static_cast<int64_t>(begins.size()), shards);
    for (const auto& [token, count] : begins) EXPECT_EQ(count, global) << token;
  }
}

TEST(TbpttShards, SameShardsEveryEpochOrDrawnAnew) {
  const std::string yaml = "{name: tbptt, sequence_length: 8, shards: 12";
  const auto same = make_shards(yaml + "}", 600, 4), anew = make_shards(yaml + ", reshuffle: true}", 600, 4);
  const auto other = make_shards(yaml + "}", 600, 4, 2);
  const int64_t epoch = same->steps_per_epoch();
  EXPECT_EQ(vector_of<int32_t>(same->batch(3, 0, 4).inputs), vector_of<int32_t>(same->batch(epoch + 3, 0, 4).inputs));
  EXPECT_NE(vector_of<int32_t>(same->batch(3, 0, 4).inputs), vector_of<int32_t>(other->batch(3, 0, 4).inputs));
  const int64_t again = anew->steps_per_epoch();
  EXPECT_NE(vector_of<int32_t>(anew->batch(3, 0, 4).inputs), vector_of<int32_t>(anew->batch(again + 3, 0, 4).inputs));
  for (int64_t step = 3; step < 5 * again; step += again)
    EXPECT_EQ(vector_of<int32_t>(anew->batch(step, 0, 4).inputs),
              vector_of<int32_t>(make_shards(yaml + ", reshuffle: true}", 600, 4)->batch(step, 0, 4).inputs))
        << "the batch depends on earlier reads";
  for (int64_t step = 0; step < 5 * again; ++step) EXPECT_EQ(anew->batch(step, 0, 4).tokens(), 32);
}

TEST(TbpttShards, SlicesMakeUpTheGlobalBatch) {
  const auto batcher = make_shards("{name: tbptt, sequence_length: 8, shards: 7}", 600, 5);
  for (const int64_t step : {0, 3, 40, 111}) {
    const auto whole = vector_of<int32_t>(batcher->batch(step, 0, 5).inputs);
    std::vector<int32_t> parts = vector_of<int32_t>(batcher->batch(step, 0, 2).inputs);
    const auto rest = vector_of<int32_t>(batcher->batch(step, 2, 3).inputs);
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(parts, whole);
  }
}

TEST(TbpttShards, MistakesAreNamed) {
  const auto error = [](const std::string& yaml, int32_t count, int64_t global) {
    return lmx_test::user_error([&] { make_shards(yaml, count, global); });
  };
  EXPECT_THAT(error("{name: tbptt, sequence_length: 200, shards: 20}", 400, 4),
              Names("[tbptt]", "20 shards", "batcher.sequence_length 200", "201"));
  EXPECT_THAT(error("{name: tbptt, sequence_length: 2, shards: 500}", 400, 4),
              Names("500 shards", "train split", "400"));
  EXPECT_THAT(error("{name: tbptt, sequence_length: 2, shards: 5}", 0, 4), Names("keeps none"));
  EXPECT_THAT(error("{name: tbptt, shards: -1}", 400, 4), Names("shards"));
}

TEST(RandomWindows, AnEpochRepeatsNoTargetAndMissesLessThanABatch) {
  for (const int64_t tokens : {85, 1000, 1009, 4201}) {
    const auto batcher = make("{name: random_windows, sequence_length: 7}", tokens, 12);
    EXPECT_FALSE(batcher->carries_state());
    EXPECT_EQ(batcher->steps_per_epoch(), (tokens - 1) / 7 / 12);
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      std::set<int32_t> targets;
      for (int64_t step = 0; step < batcher->steps_per_epoch(); ++step) {
        const Batch batch = batcher->batch(epoch * batcher->steps_per_epoch() + step, 0, 12);
        EXPECT_EQ(std::count(batch.fresh.begin(), batch.fresh.end(), 1), 12);
        for (const int32_t t : vector_of<int32_t>(batch.targets)) EXPECT_TRUE(targets.insert(t).second) << t;
      }
      EXPECT_EQ(static_cast<int64_t>(targets.size()), batcher->steps_per_epoch() * 84);
    }
  }
}

TEST(RandomWindows, EpochsAndSeedsDiffer) {
  const auto one = make("{name: random_windows, sequence_length: 7}", 5000, 12);
  const auto other = make("{name: random_windows, sequence_length: 7}", 5000, 12, 2);
  const auto first = vector_of<int32_t>(one->batch(0, 0, 12).inputs);
  EXPECT_NE(vector_of<int32_t>(one->batch(one->steps_per_epoch(), 0, 12).inputs), first);
  EXPECT_NE(vector_of<int32_t>(other->batch(0, 0, 12).inputs), first);
  std::set<int32_t> offsets;  // the boundary changes from epoch to epoch
  for (int64_t epoch = 0; epoch < 40; ++epoch) {
    offsets.insert(vector_of<int32_t>(one->batch(epoch * one->steps_per_epoch(), 0, 1).inputs)[0] % 7);
  }
  EXPECT_EQ(offsets.size(), 7u);
}

TEST(RandomWindows, DrawsFromTheWholeText) {
  for (const char* yaml : {"{name: random_windows, sequence_length: 5}",
                           "{name: random_windows, sequence_length: 5, replacement: true}"}) {
    const auto batcher = make(yaml, 10'006, 20);
    std::vector<int> tenths(10);
    const int64_t steps = 300;
    for (int64_t step = 0; step < steps; ++step) {
      const auto inputs = vector_of<int32_t>(batcher->batch(step, 0, 20).inputs);
      for (size_t b = 0; b < 20; ++b) ++tenths[static_cast<size_t>(std::min(inputs[b * 5] / 1000, 9))];
    }
    for (const int count : tenths) EXPECT_NEAR(count, 20 * steps / 10, 130) << yaml;
  }
}

TEST(RandomWindows, ReplacementReachesBothEnds) {
  const auto batcher = make("{name: random_windows, sequence_length: 2, replacement: true}", 6, 2);
  std::set<int32_t> starts;
  for (int64_t step = 0; step < 100; ++step) {
    for (const int64_t slot : {0, 1}) starts.insert(vector_of<int32_t>(batcher->batch(step, slot, 1).inputs)[0]);
  }
  EXPECT_EQ(starts, (std::set<int32_t>{0, 1, 2, 3}));  // 3: inputs 3, 4, targets 4, 5
}

// Windows that the text itself determines, in the order of the text or in another order in each epoch.
TEST(PackedWindows, FollowEachOther) {
  for (const bool shuffle : {false, true}) {
    const auto batcher =
        make(str("{name: packed_windows, sequence_length: 7, shuffle: ", shuffle ? "true" : "false", "}"), 1009, 12);
    EXPECT_FALSE(batcher->carries_state());
    const int64_t steps = batcher->steps_per_epoch();
    EXPECT_EQ(steps, 12);  // 144 whole windows
    std::vector<std::vector<int32_t>> starts(3);
    for (int64_t step = 0; step < 3 * steps; ++step) {
      const Batch batch = batcher->batch(step, 0, 12);
      EXPECT_EQ(std::count(batch.fresh.begin(), batch.fresh.end(), 1), 12);
      const auto inputs = vector_of<int32_t>(batch.inputs);
      for (size_t b = 0; b < 12; ++b) starts[static_cast<size_t>(step / steps)].push_back(inputs[7 * b]);
    }
    std::vector<int32_t> in_order;
    for (int32_t w = 0; w < 144; ++w) in_order.push_back(7 * w);
    for (std::vector<int32_t>& epoch : starts) {
      EXPECT_EQ(epoch == in_order, !shuffle);
      EXPECT_EQ(epoch == starts[1], !shuffle || &epoch == &starts[1]);
    }
    for (std::vector<int32_t>& epoch : starts) {
      std::sort(epoch.begin(), epoch.end());
      EXPECT_EQ(epoch, in_order);
    }
  }
}

TEST(PackedWindows, SaysWhetherDocumentsAreSeparate) {
  EXPECT_FALSE(make("{name: packed_windows, sequence_length: 7}", 1009, 12)->separates_documents());
  EXPECT_TRUE(make("{name: packed_windows, sequence_length: 7, documents: separate}", 1009, 12)->separates_documents());
  EXPECT_THAT(error_of("{name: packed_windows, documents: apart}", 100, 1), Names("documents", "join", "separate"));
}

// A document begins with the separator. One that a window cuts begins again in the next window.
TEST(Batch, DocumentsBeginAtSeparators) {
  const TokenArray tokens = TokenArray::of({7, 1, 2, 7, 7, 3, 4, 5, 6, 1, 1, 7, 2});
  const std::vector<int64_t> starts{0, 4, 8};
  Batch batch = make_batch(tokens, starts, 4, Allocator::cpu());
  EXPECT_EQ(batch.document_lengths(), (std::vector<int64_t>{4, 4, 4}));
  separate_documents(batch, 7);
  EXPECT_EQ(batch.documents, (std::vector<int64_t>{3, 1, 4, 3, 1}));
  EXPECT_EQ(batch.document_lengths(), batch.documents);
  EXPECT_EQ(batch.sequence_lengths(), (std::vector<int64_t>{4, 4, 4}));
  EXPECT_EQ(batch.sequences(), 3);
  const std::vector<int64_t> slots{2, 0}, lengths{1, 2};
  EXPECT_EQ(row_ids(slots, lengths), (std::vector<uint64_t>{uint64_t{2} << 32, 0, 1}));
}

TEST(Batchers, ConfigErrors) {
  EXPECT_THAT(error_of("{name: tbptt, sequence_length: 0}", 100, 1), Names("sequence_length"));
  EXPECT_THAT(error_of("{name: tbptt, sequence_lenght: 5}", 100, 1), Names("'sequence_length'?"));
  EXPECT_THAT(error_of("{name: random_windows, replacement: 3}", 100, 1), Names("replacement"));
}

}  // namespace
}  // namespace lmx
