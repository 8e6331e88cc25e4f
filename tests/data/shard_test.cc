// Token shards, vocabularies and the word table.
#include "data/shard.h"

#include <map>
#include <numeric>

#include "data/word_table.h"
#include "fixture.h"
#include "lmx/batcher.h"

namespace lmx {
namespace {

using namespace lmx_test;

class Shard : public lmx_test::DataTest {
 protected:
  std::string make(const std::vector<int32_t>& tokens) {
    ShardWriter writer(path("x.bin"));
    const size_t half = tokens.size() / 2;
    writer.append(std::span(tokens).first(half));
    writer.append(std::span(tokens).subspan(half));
    EXPECT_EQ(writer.finish(), static_cast<int64_t>(tokens.size()));
    return path("x.bin");
  }
  void expect_damaged(const std::string& bytes, const std::string& how) {
    write("bad.bin", bytes);
    EXPECT_THAT(user_error([&] { TokenArray::map(path("bad.bin")); }), Names(how, folder_.string()));
  }
};

TEST_F(Shard, RoundTrip) {
  for (const size_t n : {0u, 1u, 2u, 1000u, 100003u}) {
    std::vector<int32_t> tokens(n);
    for (size_t i = 0; i < n; ++i) tokens[i] = static_cast<int32_t>(i * 2654435761u % 50000);
    const TokenArray array = TokenArray::map(make(tokens));
    EXPECT_EQ(std::vector<int32_t>(array.tokens().begin(), array.tokens().end()), tokens);
  }
}

TEST_F(Shard, OutlivesItsFile) {
  const TokenArray array = TokenArray::map(make({1, 2, 3}));
  std::filesystem::remove(path("x.bin"));
  const TokenArray copy = array;
  EXPECT_EQ(copy.tokens()[2], 3);
}

TEST_F(Shard, DamageIsFound) {
  make({10, 20, 30, 40, 50});
  const std::string good = read("x.bin");
  ASSERT_EQ(good.size(), 64u + 20u);
  EXPECT_THAT(user_error([&] { TokenArray::map(path("missing.bin")); }), Names("missing.bin", "No such file"));
  expect_damaged("", "header");
  expect_damaged(good.substr(0, 63), "header");
  expect_damaged(good.substr(0, 80), "80 bytes");
  expect_damaged(good + "x", "85 bytes");
  expect_damaged(std::string(84, '\0'), "not finished");
  for (size_t byte = 0; byte < good.size(); ++byte) {  // whichever bit flips
    std::string bad = good;
    bad[byte] = static_cast<char>(bad[byte] ^ (1 << (byte % 8)));
    expect_damaged(bad, "damaged");
  }
}

TEST_F(Shard, AnUnfinishedShardDoesNotExistOrIsRefused) {
  {
    ShardWriter writer(path("x.bin"));
    const std::vector<int32_t> tokens{1, 2, 3};
    writer.append(tokens);
  }
  EXPECT_FALSE(std::filesystem::exists(path("x.bin")));
  std::ofstream(path("x.bin")) << std::string(64 + 3 * 4, '\0');  // of an older version
  EXPECT_THAT(user_error([&] { TokenArray::map(path("x.bin")); }), Names("x.bin", "not finished"));
}

TEST_F(Shard, FullDiskIsARunError) {
  const auto write_tokens = [&] { make(std::vector<int32_t>(10000)); };
  EXPECT_THAT(error_on_full_disk(4096, write_tokens), HasSubstr("cannot write " + path("x.bin")));
}

class VocabularyFile : public lmx_test::DataTest {};

TEST_F(VocabularyFile, RoundTrip) {
  const Vocabulary v({{"<unk>", 5}, {"</s>", 9}, {"the", 100}, {"吾", 3}, {"don't", 3}});
  v.save(path("v.tsv"));
  const Vocabulary w = Vocabulary::load(path("v.tsv"));
  ASSERT_EQ(w.size(), 5);
  for (int32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(w.word(i), v.word(i));
    EXPECT_EQ(w.count(i), v.count(i));
    EXPECT_EQ(w.id(v.word(i)), i);
  }
  EXPECT_EQ(w.id("absent"), Vocabulary::kUnk);
  EXPECT_EQ(w.id(""), Vocabulary::kUnk);
  EXPECT_EQ(Vocabulary().id("the"), Vocabulary::kUnk);
}

TEST_F(VocabularyFile, BadFiles) {
  auto error = [&](const std::string& text) {
    write("v.tsv", text);
    return user_error([&] { Vocabulary::load(path("v.tsv")); });
  };
  const std::string head = "<unk>\t1\n</s>\t1\n";
  EXPECT_THAT(error(head + "the\n"), Names("v.tsv:3", "WORD<TAB>COUNT"));
  EXPECT_THAT(error(head + "the\tmany\n"), Names("v.tsv:3"));
  EXPECT_THAT(error(head + "the\t-1\n"), Names("v.tsv:3"));
  EXPECT_THAT(error(head + "the\t3\nthe\t2\n"), Names("v.tsv:4", "twice"));
  EXPECT_THAT(error("the\t3\n"), Names("<unk>", "</s>"));
  EXPECT_THAT(error(""), Names("<unk>", "</s>"));
}

TEST(WordTable, CountsThroughManyGrowths) {
  WordTable table;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 20000; ++i) EXPECT_EQ(table.add("word" + std::to_string(i), i), i);
  }
  EXPECT_EQ(table.size(), 20000);
  EXPECT_EQ(table.count(777), 3 * 777);
  EXPECT_EQ(table.word(19999), "word19999");
  EXPECT_EQ(table.find("word123"), 123);
  EXPECT_EQ(table.find("nothing"), -1);
  EXPECT_EQ(table.add("", 1), 20000);  // the empty word is a word
  const std::string huge(200000, 'h');
  EXPECT_EQ(table.add(huge, 1), 20001);
  EXPECT_EQ(table.word(20001), huge);
}

// EvalPlan: every token but the first is a target exactly once, whatever the shape.

TokenArray counting(int64_t n) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return TokenArray::of(std::move(tokens));
}

TEST(EvalPlan, CoversEveryTargetOnceAndSlotsAreContiguous) {
  const auto allocator = Allocator::cpu();
  for (const int64_t n : {2, 3, 5, 17, 64, 65, 100, 257}) {
    for (const int64_t sequences : {1, 2, 3, 8, 64, 300}) {
      for (const int64_t length : {1, 4, 7, 1000}) {
        const EvalPlan plan(counting(n), sequences, length);
        EXPECT_EQ(plan.targets(), n - 1);
        EXPECT_LE(plan.slots(), sequences);
        std::vector<int> targets(static_cast<size_t>(n));
        std::map<int64_t, int32_t> last;  // of a slot: its last target
        for (int64_t i = 0; i < plan.batches(); ++i) {
          const Batch batch = plan.batch(i, allocator);
          ASSERT_GT(batch.sequences(), 0);
          ASSERT_LE(batch.inputs.dim(1), length);
          for (int64_t b = 0; b < batch.sequences(); ++b) {
            const int64_t slot = batch.slots[static_cast<size_t>(b)];
            ASSERT_LT(slot, plan.slots());
            const int32_t* inputs = batch.inputs.data<int32_t>() + b * batch.inputs.dim(1);
            EXPECT_EQ(batch.fresh[static_cast<size_t>(b)], !last.contains(slot));
            if (last.contains(slot)) {
              EXPECT_EQ(inputs[0], last[slot]);
            }
            for (int64_t t = 0; t < batch.inputs.dim(1); ++t) {
              const int32_t target = batch.targets.data<int32_t>()[b * batch.inputs.dim(1) + t];
              EXPECT_EQ(target, inputs[t] + 1);
              ++targets[static_cast<size_t>(target)];
              last[slot] = target;
            }
          }
        }
        EXPECT_EQ(targets[0], 0);
        EXPECT_EQ(std::count(targets.begin() + 1, targets.end(), 1), n - 1) << n << " " << sequences << " " << length;
      }
    }
  }
}

TEST(EvalPlan, RanksShareABatch) {
  const auto allocator = Allocator::cpu();
  const EvalPlan plan(counting(103), 8, 5);
  for (int64_t i = 0; i < plan.batches(); ++i) {
    const Batch whole = plan.batch(i, allocator);
    std::vector<int32_t> parts;
    for (int64_t first = 0; first < 8; first += 3) {
      const Batch part = plan.batch(i, first, 3, allocator);
      EXPECT_EQ(part.inputs.dim(1), whole.inputs.dim(1));
      EXPECT_EQ(part.slots.size(), static_cast<size_t>(part.sequences()));
      EXPECT_EQ(part.fresh.size(), part.slots.size());
      const auto values = part.targets.values<int32_t>();
      parts.insert(parts.end(), values.begin(), values.end());
    }
    const auto values = whole.targets.values<int32_t>();
    EXPECT_EQ(parts, std::vector<int32_t>(values.begin(), values.end()));
  }
}

TEST(EvalPlan, TooShort) {
  for (const int64_t n : {0, 1}) {
    EXPECT_THAT(lmx_test::user_error([&] { EvalPlan(counting(n), 4, 5, "test"); }),
                Names("test split", std::to_string(n) + " tokens", "at least 2"));
  }
}

TEST(MakeBatch, InputsAndTargets) {
  const std::vector<int64_t> starts{0, 5};
  const Batch batch = make_batch(counting(9), starts, 3, Allocator::cpu());
  EXPECT_EQ(batch.tokens(), 6);
  EXPECT_THAT(batch.inputs.values<int32_t>(), testing::ElementsAre(0, 1, 2, 5, 6, 7));
  EXPECT_THAT(batch.targets.values<int32_t>(), testing::ElementsAre(1, 2, 3, 6, 7, 8));
  EXPECT_THAT(batch.slots, testing::ElementsAre(0, 1));
  const std::vector<int64_t> outside{6};
  EXPECT_THROW(make_batch(counting(9), outside, 3, Allocator::cpu()), InternalError);
}

}  // namespace
}  // namespace lmx
