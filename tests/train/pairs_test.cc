// Training on parallel text: sub-batches, accumulation, ranks, resume, validation, times.
#include <cmath>
#include <numbers>

#include "base/text.h"
#include "train/pairs_fixture.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

class Pairs : public PairsTest {};

// One step reads the whole text: in 16 sub-batches or in one, on one rank or on several.
TEST_F(Pairs, AccumulationOfSixteenIsTheOneBigBatch) {
  for (const char* loss : {"{name: full_softmax, label_smoothing: 0.1}", "{name: full_softmax, normalize: sequence}"}) {
    const Changes whole{{"batcher.max_tokens", "100000"}, {"batch.global", "1"}, {"loss", loss}};
    const Changes parts{{"batcher.max_tokens", "120"}, {"batch.global", "16"}, {"loss", loss}};
    const auto one = train(str("one", loss[20]), whole), many = train(str("many", loss[20]), parts);
    expect_near(many.params, one.params, 2e-4f);
    EXPECT_NEAR(many.at.valid_nll, one.at.valid_nll, 1e-4);
    expect_near(train(str("ranks", loss[20]), parts, 4).params, one.params, 2e-4f);
  }
}

TEST_F(Pairs, EveryNumberOfRanksEqualsOneToRounding) {
  for (const char* batcher : {"{name: token_budget, max_tokens: 60}", "{name: same_shape, max_tokens: 60}",
                              "{name: time_balanced, max_tokens: 60, cost: flops}"}) {
    const std::string name = std::string(batcher).substr(7, 4);
    const auto one = train("self" + name, {{"batcher", batcher}});
    for (const int64_t ranks : {1, 2, 3, 8, 10}) {  // 3 divides unevenly, 10 leaves two ranks without a sub-batch
      const auto many = train(str(name, ranks), {{"batcher", batcher}}, ranks);
      expect_near(many.params, one.params, 2e-4f);
      EXPECT_NEAR(many.at.valid_nll, one.at.valid_nll, 1e-4) << ranks;
      if (ranks == 1) {
        EXPECT_EQ(many.params, one.params);
      }
    }
  }
}

// Four steps per epoch, checkpoints at 5 and 10.
TEST_F(Pairs, ResumesToTheBitWithinAnEpoch) {
  for (const int64_t ranks : {0, 3}) {
    const Changes all{{"train.steps", "13"}};
    const auto whole = train(str("whole", ranks), all, ranks);
    train(str("split", ranks), {{"train.steps", "5"}}, ranks);
    const auto rest = train(str("split", ranks), all, ranks);
    EXPECT_EQ(rest.params, whole.params);
    EXPECT_GE(rest.at.seconds, 0);
    const auto a = records(str("whole", ranks), "train"), b = records(str("split", ranks), "train");
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i)
      for (const char* key : {"nll_nat", "padding", "tokens", "grad_norm"}) EXPECT_EQ(a[i][key], b[i][key]) << key << i;
  }
}

// A mix whose second part is read completely in two and a half epochs.
TEST_F(Pairs, AMixResumesToTheBitWithinAnEpoch) {
  data_.train_parts = {{"main", 0, 100, 100}, {"crawl", 100, 200, 80}};
  const Changes all{{"train.steps", "29"}, {"batch.global", "3"}};
  const auto whole = train("whole", all, 2);
  train("split", {{"train.steps", "17"}, {"batch.global", "3"}}, 2);
  EXPECT_EQ(train("split", all, 2).params, whole.params);
  data_.train_parts.clear();
  EXPECT_NE(train("plain", all, 2).params, whole.params);
}

TEST_F(Pairs, ValidationIsTheMeanOverTargetsWhateverItsBatches) {
  const auto one = train("one", {{"train.eval_batch", "1"}});
  EXPECT_NEAR(train("many", {{"train.eval_batch", "32"}}).at.valid_nll, one.at.valid_nll, 1e-6);
  EXPECT_NEAR(train("ranks", {{"train.eval_batch", "7"}}, 3).at.valid_nll, one.at.valid_nll, 1e-4);
  int64_t targets = 0;
  for (int64_t i = 0; i < data_.valid_pairs.size(); ++i)
    targets += static_cast<int64_t>(data_.valid_pairs.target(i).size());
  const auto valid = records("one", "valid");
  ASSERT_EQ(valid.size(), 2u);
  EXPECT_EQ(valid[1]["tokens"], targets);
  EXPECT_NEAR(valid[1]["nll_bit"].get<double>(), one.at.valid_nll / std::numbers::ln2, 1e-12);
  EXPECT_NEAR(valid[1]["ppl"].get<double>(), std::exp(one.at.valid_nll), 1e-9);
  EXPECT_LT(valid[1]["nll_nat"].get<double>(), valid[0]["nll_nat"].get<double>());  // the model learns
}

TEST_F(Pairs, RecordsCountRealTargetsPaddingAndSpread) {
  train("r", {}, 2);
  const auto all = records("r", "train");
  ASSERT_EQ(all.size(), 12u);
  int64_t epoch = 0;
  for (int64_t i = 0; i < data_.train_pairs.size(); ++i)
    epoch += static_cast<int64_t>(data_.train_pairs.target(i).size());
  for (size_t i = 0; i < all.size(); ++i) {
    const double passed = all[i]["epoch"].get<double>();
    if (passed == std::floor(passed)) {
      EXPECT_EQ(all[i]["tokens"].get<double>(), passed * static_cast<double>(epoch));
    }
    EXPECT_GT(all[i]["padding"].get<double>(), 0);
    EXPECT_LT(all[i]["padding"].get<double>(), 0.3);
    EXPECT_GE(all[i]["step_spread"].get<double>(), 0);
    EXPECT_NEAR(all[i]["nll_bit"].get<double>(), all[i]["nll_nat"].get<double>() / std::numbers::ln2, 1e-12);
  }
}

TEST_F(Pairs, PartsThatDoNotFitAreNamedBeforeAnythingRuns) {
  const auto error = [&](const Changes& changes) { return user_error([&] { train("x", changes); }); };
  const std::string lstm = "{name: lstm, embedding: 8, cells: 8}";
  EXPECT_THAT(error({{"model", lstm}}), Names("lstm", "token_budget", "pairs", "tiny_translator", "tbptt"));
  EXPECT_THAT(error({{"batcher", "{name: tbptt, sequence_length: 5}"}}),
              Names("tbptt", "one language", "tiny_translator", "token_budget", "time_balanced"));
  data_.train_pairs = {};
  EXPECT_THAT(error({}), Names("tiny_translator", "one language"));
  EXPECT_THAT(error({{"model", lstm}}), Names("pairs", "train split", "plugins list"));
}

TEST_F(Pairs, MeasuredTimesStayWithTheRun) {
  const Changes all{{"batcher", "{name: time_balanced, max_tokens: 60}"}, {"train.steps", "9"}};
  const auto whole = train("run", all);
  const std::string times = lmx_test::read_file(path("run/") + kCostsFile);
  EXPECT_THAT(times, Names("\"columns\"", "sentences"));
  std::filesystem::create_directories(folder_ / "half" / "checkpoints");
  write_all(path("half/") + kCostsFile, times);
  // Continues from step 5, with the same order of sub-batches.
  std::filesystem::copy(folder_ / "run" / "checkpoints" / "step-5", folder_ / "half" / "checkpoints" / "step-5",
                        std::filesystem::copy_options::recursive);
  EXPECT_EQ(train("half", all).params, whole.params);
  write_all(path("half/") + kCostsFile, "{\"seconds\": [[1, 2, 3, 0.5]]}");
  EXPECT_THAT(user_error([&] { train("half", all); }), Names("order of sub-batches"));
  write_all(path("half/") + kCostsFile, "{\"seconds\": [[1,");
  EXPECT_THAT(user_error([&] { train("half", all); }), Names("damaged"));
}

TEST(PairCosts, IsLinearBetweenItsGridAndMeasuresEachPointOnce) {
  int measured = 0;
  double slower = 1;  // slowness of the machine
  PairCosts costs([&](std::array<int64_t, 3> shape, int64_t) {
    ++measured;
    const auto [n, s, t] = shape;
    return slower * static_cast<double>(n * (s + 2 * t) + 7);
  });
  for (const auto& [n, s, t] : std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {5, 9, 17}, {5, 9, 17}, {70, 31, 3}})
    EXPECT_NEAR(costs.seconds(n, s, t), static_cast<double>(n * (s + 2 * t) + 7), 1e-9);
  EXPECT_EQ(measured, costs.size());
  slower = 2;
  EXPECT_NEAR(costs.seconds(300, 31, 3), 2 * (300 * (31 + 2 * 3) + 7), 1e-6);
  slower = 1;
  costs.settle();
  EXPECT_EQ(measured, 3 * costs.size());
  EXPECT_NEAR(costs.seconds(300, 31, 3), 300 * (31 + 2 * 3) + 7, 1e-6);
  PairCosts again(costs.to_json(), "times.json");
  EXPECT_EQ(again.seconds(5, 9, 17), costs.seconds(5, 9, 17));
  EXPECT_THROW(again.seconds(5, 900, 17), UserError);
}

TEST(Durations, BarsHoldWhatFallsIntoThem) {
  for (double s = 1e-6; s < 1e4; s *= 1.03) {
    EXPECT_LE(duration_of_bin(duration_bin(s)), s * (1 + 1e-9));
    EXPECT_LT(s, duration_of_bin(duration_bin(s) + 1));
  }
  EXPECT_EQ(duration_bin(duration_of_bin(-13)), -13);
}

TEST_F(Pairs, StopsWhenValidationSaysSo) {
  const auto whole = train("whole", {{"train.eval_every", "2"}, {"train.steps", "40"}});
  EXPECT_TRUE(whole.stopped.empty());
  const auto valid = records("whole", "valid");
  const double limit = valid[4]["nll_bit"].get<double>() + 1e-9;  // of step 10
  for (const int64_t ranks : {0, 2}) {
    const auto early = train(str("early", ranks),
                             {{"train.eval_every", "2"},
                              {"train.steps", "40"},
                              {"stop.when", str("valid.nll_bit <= ", number_text(limit + 1e-4))}},
                             ranks);
    EXPECT_LE(early.at.step, 10);
    EXPECT_THAT(early.stopped, HasSubstr("valid.nll_bit"));
    EXPECT_GT(early.at.seconds, 0);
    EXPECT_TRUE(std::filesystem::exists(path(str("early", ranks, "/checkpoints/step-", early.at.step))));
  }
  // A stopped run that is resumed with the same target ends at once; without a target it trains to the last step.
  const auto again = train("early0", {{"train.eval_every", "2"},
                                      {"train.steps", "40"},
                                      {"stop.when", str("valid.nll_bit <= ", number_text(limit + 1e-4))}});
  EXPECT_LE(again.at.step, 10);
  EXPECT_FALSE(again.stopped.empty());
  EXPECT_EQ(train("early0", {{"train.eval_every", "2"}, {"train.steps", "40"}}).at.step, 40);
}

TEST_F(Pairs, StopRulesThatMeanNothingAreNamed) {
  const auto error = [&](const std::string& when) {
    return user_error([&] { read_recipe(recipe({{"stop.when", "'" + when + "'"}}), "pairs"); });
  };
  EXPECT_THAT(error("valid.nll_bits <= 2"), Names("stop.when", "'valid.nll_bit'", "valid.ppl"));
  EXPECT_THAT(error("valid.ppl == 2"), Names("'=='", "<="));
  EXPECT_THAT(error("valid.bpc <= 2"), Names("stop.when", "words", "valid.nll_bit"));
  EXPECT_THAT(error("valid.ppl <= low"), Names("'low'"));
  EXPECT_THAT(error("valid.ppl<=3"), Names("valid.nll_bit <= 2.11"));
  EXPECT_THAT(error("valid.ppl <= 3 or so"), Names("valid.nll_bit <= 2.11"));
}

}  // namespace
}  // namespace lmx::app
