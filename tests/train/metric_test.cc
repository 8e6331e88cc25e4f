// The metrics of a recipe: their values against a plain loop, over batches and ranks, and that they change nothing.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "app/inference/evaluate_run.h"
#include "app/run/run.h"
#include "backend/counting/device.h"
#include "runfiles/checkpoint.h"
#include "same_tensors.h"
#include "train/evaluate.h"
#include "train/loop/validator.h"
#include "train/run_folder.h"
#include "train/session.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

constexpr const char* kMetricRun = R"(
model: {name: lstm, embedding: 8, cells: 10}
loss: {name: full_softmax}
optimizer: {name: adam, lr: 0.02}
train: {steps: 8, log_every: 4, eval_every: 4, eval_batch: 4}
metric: {accuracy: {name: top_words, k: [1, 3, 40]}}
)";

class MetricRuns : public RunFolderTest {
 protected:
  void run(const std::string& dir, int64_t ranks, const Changes& changes = {}, const std::string& resume = "",
           int64_t until = 0) {
    run_recipe(recipe_in(dir, ranks, str(kWordRecipe, kMetricRun), changes), "metric",
               {.resume = resume, .until_step = until});
  }
  std::string error(const std::string& metric) {
    return user_error([&] { run("refused", 0, {{"metric", metric}}); });
  }
};

// Where the target stands among all words by their logits.
std::vector<int64_t> places(const Session& s, const Tensor& logits, const Batch& batch) {
  std::vector<int64_t> all;
  const std::vector<double> x = lmx_test::values_of(s.ctx, logits);
  const auto words = static_cast<size_t>(logits.dim(1));
  for (size_t i = 0; i < static_cast<size_t>(batch.tokens()); ++i) {
    const auto target = static_cast<size_t>(batch.targets.data<int32_t>()[i]);
    int64_t place = 0;
    for (size_t w = 0; w < words; ++w) {
      const double own = x[i * words + w], wanted = x[i * words + target];
      place += own > wanted || (own == wanted && w < target);
    }
    all.push_back(place);
  }
  return all;
}

TEST_F(MetricRuns, EqualAPlainLoop) {
  const Recipe r = read_recipe(changed(str(kWordRecipe, kMetricRun), {}), "metric");
  const auto comm = make_self_communicator(1);
  Session s(r, *comm, {.open = [&] { return open_dataset(r.data); }});
  Batch batch = make_batch(s.data.valid, std::vector<int64_t>{0}, s.data.valid.size() - 1, s.ctx.host);
  batch.slots = {0};
  batch.fresh = {1};
  Context quiet = s.ctx;
  quiet.tape = nullptr;
  quiet.training = false;
  ModelState state = s.network.model->initial_state(quiet, 1);
  const Var features = s.network.forward(quiet, s.params, batch, state);
  const std::vector<int64_t> found = places(s, s.network.loss->logits(quiet, s.params, features.value()), batch);
  const auto part = [&](int64_t k) {
    return static_cast<double>(std::count_if(found.begin(), found.end(), [k](int64_t place) { return place < k; })) /
           static_cast<double>(found.size());
  };
  SplitPlan plan{"valid", 1, 5, 0, true};
  plan.metrics = &s.shared->metrics;
  for (const int64_t length : {5, 156}) {
    plan.length = length;
    const SplitScore score = score_split(s.ctx, s.network, s.params, s.data.valid, plan);
    const auto values = s.shared->metrics.values(score.sums, score.tokens);
    ASSERT_EQ(values.size(), 3u);
    EXPECT_EQ(values[0], (std::pair<std::string, double>("accuracy/top_1", part(1))));
    EXPECT_EQ(values[1], (std::pair<std::string, double>("accuracy/top_3", part(3))));
    EXPECT_EQ(values[2], (std::pair<std::string, double>("accuracy/top_40", 1)));
  }
  EXPECT_GT(part(3), part(1));
  EXPECT_LT(part(3), 1);
}

TEST_F(MetricRuns, AreRecordedAndChangeNothing) {
  run("plain", 0, {{"metric", "{}"}});
  run("one", 0);
  run("three", 3);
  const auto plain = records("plain", "valid"), one = records("one", "valid"), three = records("three", "valid");
  ASSERT_EQ(one.size(), 2u);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_FALSE(plain[i].contains("accuracy/top_1"));
    EXPECT_EQ(one[i]["nll_nat"], plain[i]["nll_nat"]);
    EXPECT_NEAR(three[i]["accuracy/top_3"].get<double>(), one[i]["accuracy/top_3"].get<double>(), 1e-9);
    EXPECT_EQ(one[i]["accuracy/top_40"], 1);
  }
  lmx_test::expect_same(load_checkpoint(path("plain/checkpoints/step-8"), Allocator::cpu()).model,
                        load_checkpoint(path("one/checkpoints/step-8"), Allocator::cpu()).model);
  EvalOptions options;
  options.checkpoint = "8";
  const EvalResult evaluated = evaluate_run(path("one"), options);
  ASSERT_EQ(evaluated.metrics.size(), 3u);
  EXPECT_EQ(evaluated.metrics[1].first, "accuracy/top_3");
  EXPECT_EQ(evaluated.metrics[1].second, one.back()["accuracy/top_3"].get<double>());
}

// The products of a validation.
std::vector<std::array<int64_t, 4>> products_of(const std::string& metric) {
  const Recipe r = read_recipe(changed(str(kWordRecipe, kMetricRun), {{"metric", metric}}), "metric");
  const auto comm = make_self_communicator(1);
  const auto device = CountingDevice::make(Device::Kind::cpu);
  Session s(r, *comm, {.open = [&] { return open_dataset(r.data); }, .device = device->device()});
  Recording recording(*device);
  recording.record().begin_update();
  score_validation(s, 0);
  recording.record().end_update();
  std::vector<std::array<int64_t, 4>> all;
  for (const CountedWork& w : recording.record().update())
    if (w.m > 0) all.push_back({w.m, w.n, w.k, w.times});
  return all;
}

TEST_F(MetricRuns, CostNoProduct) {
  Registry::instance().add_directory(lmx_test::build_path("/tests/train_plugins"));
  const auto plain = products_of("{}");
  EXPECT_FALSE(plain.empty());
  EXPECT_EQ(products_of("{a: {name: mean_nats}}"), plain);
  EXPECT_EQ(products_of("{a: {name: top_words}, b: {name: mean_nats}}"), plain);
}

TEST_F(MetricRuns, SomeNeedNoWords) {
  Registry::instance().add_directory(lmx_test::build_path("/tests/train_plugins"));
  run("r", 2, {{"metric", "{a: {name: mean_nats}}"}});
  for (const auto& record : records("r", "valid"))
    EXPECT_NEAR(record["a/nats"].get<double>(), record["nll_nat"].get<double>(), 1e-12);
}

TEST_F(MetricRuns, AResumedRunMayHaveOthers) {
  run("r", 0, {}, "", 4);
  run("r", 0, {{"metric", "{guess: {name: top_words, k: [2]}}"}}, path("r"));
  const auto valid = records("r", "valid");
  EXPECT_TRUE(valid.front().contains("accuracy/top_1"));
  EXPECT_FALSE(valid.back().contains("accuracy/top_1"));
  EXPECT_TRUE(valid.back().contains("guess/top_2"));
}

TEST_F(MetricRuns, WrongOnesAreRefused) {
  EXPECT_THAT(error("{accuracy: {name: top_word}}"), Names("change:1:", "metric.accuracy", "top_words"));
  EXPECT_THAT(error("{accuracy: {name: top_words, kk: 3}}"), Names("change:1:", "metric.accuracy.kk", "'k'"));
  EXPECT_THAT(error("{accuracy: {name: top_words, k: []}}"), Names("metric.accuracy.k", "[1, 5]"));
  EXPECT_THAT(error("{accuracy: {name: top_words, k: [2, 2]}}"), Names("metric.accuracy.k", "2 is here twice"));
  EXPECT_THAT(error("{'top/1': {name: top_words}}"), Names("metric.top/1", "'top/1'", "small letters"));
  EXPECT_THAT(error("{name: top_words}"), Names("metric.name", "{LABEL: {name: PLUGIN}}"));
  EXPECT_THAT(error("top_words"), Names("metric", "{LABEL: {name: PLUGIN}}"));
  EXPECT_FALSE(std::filesystem::exists(path("refused")));
}

}  // namespace
}  // namespace lmx::app
