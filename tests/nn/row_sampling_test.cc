// Which rows take part in a step: sizes, edges, and that draws are functions of key and step.
#include "lmx/row_sampling.h"
#include "test.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

namespace lmx {
namespace {

using namespace lmx_test;
using ::testing::IsSubsetOf;
using ::testing::IsSupersetOf;
using Rows = std::vector<int32_t>;
using Kind = RowSelector::Kind;

bool ascends(const Rows& rows) {
  return std::adjacent_find(rows.begin(), rows.end(), std::greater_equal<>()) == rows.end();
}

TEST(RowSampling, PercentOfRows) {
  EXPECT_EQ(rows_of_percent(10, 15'000), 1500);
  EXPECT_EQ(rows_of_percent(0, 15'000), 0);
  EXPECT_EQ(rows_of_percent(100, 7), 7);
  EXPECT_EQ(rows_of_percent(50, 1), 1);  // the nearest
  EXPECT_EQ(rows_of_percent(49, 1), 0);
  EXPECT_EQ(rows_of_percent(10, 4), 0);
  EXPECT_EQ(rows_of_percent(10, 0), 0);
}

TEST(RowSampling, RandomRowsAreASetOfTheSize) {
  for (const int64_t n : {1, 2, 17, 1000}) {
    for (const int64_t count : std::set<int64_t>{0, 1, n / 2, n - 1, n, n + 5}) {
      const Rows rows = random_rows(RandomKey(4).fold(static_cast<uint64_t>(n)), count, n);
      EXPECT_EQ(static_cast<int64_t>(rows.size()), std::min(count, n));
      EXPECT_TRUE(ascends(rows));
      if (!rows.empty()) {
        EXPECT_GE(rows.front(), 0);
        EXPECT_LT(rows.back(), n);
      }
    }
  }
  EXPECT_THAT(random_rows(RandomKey(1), 3, 0), IsEmpty());
  EXPECT_EQ(random_rows(RandomKey(1), 300, 1000), random_rows(RandomKey(1), 300, 1000));
  EXPECT_NE(random_rows(RandomKey(1), 300, 1000), random_rows(RandomKey(2), 300, 1000));
}

// Every row, and every pair, as often as in a draw without replacement. Keys are fixed: this holds always or never.
TEST(RowSampling, RandomRowsAreUniform) {
  constexpr int64_t kRows = 12, kCount = 5, kDraws = 20'000;
  std::vector<double> single(kRows), pair(kRows * kRows);
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    const Rows rows = random_rows(RandomKey(9).fold(draw), kCount, kRows);
    for (const int32_t a : rows) {
      ++single[static_cast<size_t>(a)];
      for (const int32_t b : rows) ++pair[static_cast<size_t>(a * kRows + b)];
    }
  }
  const double one = kDraws * 5.0 / 12, two = one * 4 / 11;
  for (const double count : single) EXPECT_NEAR(count, one, 6 * std::sqrt(one));
  for (int64_t a = 0; a < kRows; ++a)
    for (int64_t b = 0; b < a; ++b) EXPECT_NEAR(pair[static_cast<size_t>(a * kRows + b)], two, 6 * std::sqrt(two));
}

TEST(RowSampling, AdditionalRowsAreOthers) {
  const Rows taken{0, 1, 2, 5, 9, 19};
  for (const int64_t count : {0, 1, 7, 14, 15, 100}) {
    const Rows rows = additional_rows(RandomKey(3), taken, count, 20);
    EXPECT_EQ(static_cast<int64_t>(rows.size()), std::min<int64_t>(count, 14));
    EXPECT_TRUE(ascends(rows));
    Rows common;
    std::set_intersection(rows.begin(), rows.end(), taken.begin(), taken.end(), std::back_inserter(common));
    EXPECT_THAT(common, IsEmpty());
  }
  EXPECT_THAT(additional_rows(RandomKey(3), Rows{0, 1, 2}, 5, 3), IsEmpty());
}

TEST(RowSampling, SelectedRowsAreTheUnionOfThree) {
  const Rows words{40, 7, 40, 99};
  const Rows rows = select_rows(RandomKey(1), words, {10, 0}, 100);
  EXPECT_THAT(rows, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 40, 99));
  const Rows drawn = select_rows(RandomKey(1), words, {10, 20}, 100);
  EXPECT_THAT(drawn, IsSupersetOf(rows));
  EXPECT_THAT(drawn, IsSupersetOf(random_rows(RandomKey(1), 20, 100)));
  EXPECT_LE(drawn.size(), rows.size() + 20);
  EXPECT_TRUE(ascends(drawn));
  EXPECT_EQ(select_rows(RandomKey(1), words, {70, 70}, 100).size(),
            select_rows(RandomKey(1), {}, {70, 70}, 100).size() + 1)
      << "word 99 or 40 may be drawn, but not counted twice";
  EXPECT_EQ(select_rows(RandomKey(1), words, {100, 100}, 100).size(), 100u);
  EXPECT_THAT(select_rows(RandomKey(1), {}, {0, 0}, 100), IsEmpty());
  EXPECT_THAT(select_rows(RandomKey(1), Rows{1}, {10, 10}, 2), ElementsAre(1));
  EXPECT_THROW(select_rows(RandomKey(1), Rows{2}, {10, 10}, 2), InternalError);
  EXPECT_THROW(select_rows(RandomKey(1), Rows{-1}, {10, 10}, 2), InternalError);
}

std::vector<ParameterSpec> model() {
  return {{"embedding.weight", {50, 4}, {}, true},   {"lstm.0.weight_ih", {40, 4}, {}, false},
          {"lstm.0.weight_hh", {40, 10}, {}, false}, {"lstm.0.bias", {40}, {}, false},
          {"lstm.1.weight_ih", {40, 10}, {}, false}, {"softmax.weight", {50, 10}, {}, true},
          {"softmax.bias", {50}, {}, true}};
}

struct Step {
  StepPlan plan;
  std::map<std::string, Rows> rows;
};
Step step_of(const RowRule& rule, int rank, int64_t step, const std::vector<ParameterSpec>& params = model()) {
  RowSelector selector(rule, params, RandomKey(8));
  Step s;
  s.plan.step = step;
  s.plan.sampler_key = RandomKey(5).fold(static_cast<uint64_t>(step));
  selector.begin_step(s.plan, rank, 0, Rows{30, 31, 30}, Rows{31, 2, 45});
  for (const ParameterSpec& p : params)
    if (selector.kind(p.name) != Kind::whole) s.rows[p.name] = selector.rows(p.name);
  return s;
}

TEST(RowSelector, Kinds) {
  const RowSelector selector(RowRule{}, model(), RandomKey(8));
  EXPECT_EQ(selector.kind("embedding.weight"), Kind::embedding);
  EXPECT_EQ(selector.kind("lstm.0.weight_ih"), Kind::hidden);
  EXPECT_EQ(selector.kind("lstm.0.bias"), Kind::whole);
  EXPECT_EQ(selector.kind("softmax.weight"), Kind::softmax);
  EXPECT_EQ(selector.kind("softmax.bias"), Kind::softmax);
  EXPECT_EQ(RowSelector({.hidden_q = 99}, model(), RandomKey(8)).kind("lstm.0.weight_hh"), Kind::whole);  // 40 of 40
  EXPECT_EQ(RowSelector({.softmax = "nothing"}, model(), RandomKey(8)).kind("softmax.weight"), Kind::whole);
  EXPECT_THROW(static_cast<void>(selector.rows("lstm.0.bias")), InternalError);
}

TEST(RowSelector, KeysThatNothingReads) {
  const auto error = [](const RowRule& rule, const std::vector<ParameterSpec>& params = model()) {
    return user_error([&] { RowSelector(rule, params, RandomKey(8)).check("sync.all"); });
  };
  EXPECT_EQ(error({}), "no error");
  EXPECT_EQ(error({.shares = {77, 1}, .softmax = "^softmax", .embedding = "^embedding"}), "no error");
  EXPECT_THAT(error({.softmax = "sofmax"}), Names("[sync] sync.all.softmax: 'sofmax'", "embedding.weight, lstm.0"));
  EXPECT_THAT(error({.embedding = "embd"}), Names("sync.all.embedding: 'embd'"));
  EXPECT_THAT(error({.source = "^source"}), Names("sync.all.source: '^source'"));
  const std::vector<ParameterSpec> hidden{{"lstm.0.weight_hh", {40, 10}, {}, false}};
  EXPECT_EQ(error({}, hidden), "no error");
  EXPECT_EQ(error({.shares = {77, 10}}, hidden),
            "[sync] sync.all.p 77 and q 10 select rows of the output layer's table, and the rule has none (softmax: "
            "'softmax'): lstm.0.weight_hh");
}

TEST(RowSelector, RowsOfAStep) {
  const Step s = step_of({}, 1, 3);
  EXPECT_THAT(s.rows.at("embedding.weight"), ElementsAre(30, 31));
  EXPECT_THAT(s.rows.at("softmax.weight"), IsSupersetOf({0, 1, 2, 3, 4, 31, 45}));
  EXPECT_LE(s.rows.at("softmax.weight").size(), 12u);
  EXPECT_EQ(s.rows.at("softmax.weight"), s.rows.at("softmax.bias"));
  EXPECT_EQ(s.rows.at("lstm.0.weight_ih").size(), 36u);
  EXPECT_EQ(s.rows.at("lstm.0.weight_ih"), s.rows.at("lstm.0.weight_hh"));  // the same neurons
  EXPECT_NE(s.rows.at("lstm.0.weight_ih"), s.rows.at("lstm.1.weight_ih"));
  EXPECT_EQ(s.plan.rows.size(), 2u);
  EXPECT_EQ(s.plan.rows.at("softmax.weight"), s.rows.at("softmax.weight"));
  EXPECT_FALSE(s.rows.contains("lstm.0.bias"));
  EXPECT_EQ(step_of({}, 1, 3).rows, s.rows);
}

TEST(RowSelector, DrawsByStepAndRank) {
  const RowRule rule{.shares = {10, 30}};
  const Step a = step_of(rule, 0, 3), b = step_of(rule, 1, 3), later = step_of(rule, 0, 4);
  EXPECT_NE(a.rows.at("softmax.weight"), b.rows.at("softmax.weight"));
  EXPECT_NE(a.rows.at("softmax.weight"), later.rows.at("softmax.weight"));
  EXPECT_EQ(a.rows.at("lstm.0.weight_ih"), b.rows.at("lstm.0.weight_ih"));
  EXPECT_NE(a.rows.at("lstm.0.weight_ih"), later.rows.at("lstm.0.weight_ih"));
  EXPECT_NE(a.plan.sampler_key.value(), b.plan.sampler_key.value());
  RowRule together = rule;
  together.draw = "step";
  EXPECT_EQ(step_of(together, 0, 3).rows, step_of(together, 1, 3).rows);
  EXPECT_NE(step_of(together, 0, 3).rows, step_of(together, 0, 4).rows);
  EXPECT_EQ(step_of(together, 0, 3).plan.sampler_key.value(), step_of(together, 1, 3).plan.sampler_key.value());
}

TEST(RowSelector, ATiedTableMovesTheWordsOfTheInputsToo) {
  const Step s = step_of({.softmax = "embedding|softmax"}, 0, 0);
  EXPECT_EQ(s.plan.rows.at("embedding.weight"), s.plan.rows.at("softmax.bias"));
  EXPECT_THAT(s.rows.at("embedding.weight"), IsSupersetOf({30, 31}));
  EXPECT_THAT(s.plan.rows.at("embedding.weight"), IsSubsetOf(s.rows.at("embedding.weight")));
}

// Whatever the patterns say: the output layer reads the same table.
TEST(RowSelector, ATiedTableIsKnownByTheOutputLayer) {
  std::vector<ParameterSpec> tied = model();
  tied.erase(tied.end() - 2);
  tied[0].output = true;
  const Step s = step_of({}, 0, 0, tied);
  EXPECT_EQ(s.plan.rows.at("embedding.weight"), s.plan.rows.at("softmax.bias"));
  EXPECT_THAT(s.rows.at("embedding.weight"), IsSupersetOf({2, 30, 31, 45}));
}

// Source words are 7 and 8, inputs 30 and 31, targets 2, 31 and 45.
TEST(RowSelector, SourceWordsReadTheirTable) {
  const auto rows = [](const std::vector<ParameterSpec>& tables, const RowRule& rule = {.shares = {0, 0}}) {
    RowSelector selector(rule, tables, RandomKey(8));
    StepPlan plan;
    selector.begin_step(plan, 0, 0, Rows{30, 31, 30}, Rows{31, 2, 45}, Rows{8, 7, 8});
    std::vector<Rows> all;
    for (const ParameterSpec& p : tables) all.push_back(selector.rows(p.name));
    return all;
  };
  const auto table = [](const char* name, bool output = false) {
    return ParameterSpec{name, {50, 4}, {}, true, output};
  };
  EXPECT_THAT(rows({table("encoder.embedding.weight"), table("decoder.embedding.weight")}),
              ElementsAre(Rows{7, 8}, Rows{30, 31}));
  EXPECT_THAT(rows({table("encoder.embedding.weight"), table("decoder.embedding.weight", true)}),
              ElementsAre(Rows{7, 8}, Rows{2, 30, 31, 45}));
  EXPECT_THAT(rows({table("embedding.weight")}), ElementsAre(Rows{7, 8, 30, 31}));
  EXPECT_THAT(rows({table("embedding.weight", true)}), ElementsAre(Rows{2, 7, 8, 30, 31, 45}));
  EXPECT_THAT(
      rows({table("german"), table("english")}, {.shares = {0, 0}, .embedding = "german|english", .source = "german"}),
      ElementsAre(Rows{7, 8}, Rows{30, 31}));
}

TEST(RowSelector, TinyTablesAndMatrices) {
  const std::vector<ParameterSpec> tiny{{"softmax.weight", {46, 1}, {}, true}, {"w", {1, 1}, {}, false}};
  const Step s = step_of({.shares = {0, 0}, .hidden_q = 10}, 0, 0, tiny);
  EXPECT_THAT(s.rows.at("softmax.weight"), ElementsAre(2, 31, 45));
  EXPECT_THAT(s.rows.at("w"), IsEmpty());
}

TEST(RowSelector, SaysWhatItSelects) {
  const std::string text = RowSelector(RowRule{}, model(), RandomKey(8)).describe();
  EXPECT_THAT(text, Names("10 % most frequent", "10 % random"));
  EXPECT_THAT(text, HasSubstr("of softmax.bias, softmax.weight"));
  EXPECT_THAT(text, HasSubstr("90 % of the rows of lstm.0.weight_hh, lstm.0.weight_ih, lstm.1.weight_ih"));
  EXPECT_THAT(text, HasSubstr("all of lstm.0.bias"));
}

TEST(RowRule, Messages) {
  const auto message = [](const char* text) {
    return lmx_test::user_error([&] { read_config<RowRule>(parse_yaml(text, "r.yaml"), "sync.a"); });
  };
  EXPECT_THAT(message("p: 101"), Names("sync.a.p"));
  EXPECT_THAT(message("hidden_q: -1"), Names("sync.a.hidden_q"));
  EXPECT_THAT(message("draw: worker"), Names("rank, step"));
  EXPECT_THAT(message("softmax: '['"), Names("sync.a.softmax: '['"));
  EXPECT_THAT(message("embedding: '('"), Names("sync.a.embedding"));
  EXPECT_THAT(message("source: '('"), Names("sync.a.source"));
}

// Against texts that follow Zipf's law.
TEST(RowSampling, ExpectedWordsAreTheMeanOfDraws) {
  constexpr int64_t kWords = 500;
  std::vector<double> weight;
  for (int64_t w = 1; w <= kWords; ++w) weight.push_back(1.0 / static_cast<double>(w));
  std::mt19937 draw(3);
  std::discrete_distribution<int32_t> zipf(weight.begin(), weight.end());
  for (const int length : {40, 120}) {
    double sum = 0;
    constexpr int kTexts = 200;
    for (int text = 0; text < kTexts; ++text) {
      std::set<int32_t> words;
      for (int i = 0; i < length; ++i) words.insert(zipf(draw));
      sum += static_cast<double>(words.size());
    }
    EXPECT_NEAR(static_cast<double>(expected_words(length, kWords)), sum / kTexts, 2) << length;
  }
}

}  // namespace
}  // namespace lmx
