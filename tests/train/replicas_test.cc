// Runs of ranks that have their own values between synchronisations.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "app/run/run.h"
#include "names.h"
#include "runfiles/checkpoint.h"
#include "train/run_folder.h"

namespace lmx::train {
namespace {

using lmx_test::Names;

// Appended to kWordRecipe.
constexpr const char* kTraining = R"(
model: {name: lstm, embedding: 8, cells: 10}
loss: {name: full_softmax}
optimizer: {name: sgd, lr: 0.5}
schedule: {name: constant}
clip: 0
train: {steps: 12, log_every: 4, eval_every: 6}
checkpoint: {every: 6, keep_last: 20}
)";

std::string rule(const std::string& keys) {
  return "{all: {params: '.*', " + keys + "}}";
}
const std::string kDiloco = rule("strategy: diloco, every: 4"), kAllreduce = rule("strategy: allreduce");

class ReplicaRuns : public RunFolderTest {
 protected:
  static Changes with_batch(Changes changes) {
    changes.emplace_back("batch.global", "8");
    return changes;
  }
  std::vector<float> run(const std::string& dir, int64_t ranks, const Changes& changes, const std::string& resume = "",
                         int64_t until = 0) {
    RunOptions options;
    options.resume = resume;
    options.until_step = until;
    const Node recipe = recipe_in(dir, ranks, str(kWordRecipe, kTraining), with_batch(changes));
    return values_at(dir, run_recipe(recipe, "replicas", options).steps);
  }
  std::vector<float> values_at(const std::string& dir, int64_t step) const {
    const TrainState state = load_checkpoint(str(path(dir), "/checkpoints/step-", step), Allocator::cpu());
    std::vector<float> all;
    for (const auto& [name, t] : state.model) all.insert(all.end(), t.values<float>().begin(), t.values<float>().end());
    return all;
  }
  std::string error(int64_t ranks, const Changes& changes) {
    return message<UserError>([&] { run("refused", ranks, changes); });
  }
};

// The mean of the ranks' values after one step of SGD is the step with the mean gradient.
TEST_F(ReplicaRuns, AnExchangeAfterEveryStepEqualsAllReduce) {
  const auto together = run("together", 4, {{"sync", kAllreduce}});
  expect_near(run("local", 4, {{"sync", rule("strategy: local_sgd, every: 1")}}), together, 1e-5f);
  expect_near(run("outer", 4, {{"sync", rule("strategy: diloco, every: 1, outer_lr: 1, outer_momentum: 0")}}), together,
              1e-5f);
  EXPECT_NEAR(records("outer", "train").back()["nll_nat"], records("together", "train").back()["nll_nat"], 1e-4);
}

// Between exchanges, validations and checkpoints see the values of the last one.
TEST_F(ReplicaRuns, TheAnchorsChangeOnlyAtExchanges) {
  run("r", 2, {{"sync", kDiloco}, {"checkpoint.every", "1"}});
  EXPECT_EQ(values_at("r", 4), values_at("r", 7));
  EXPECT_NE(values_at("r", 4), values_at("r", 8));
  EXPECT_NE(values_at("r", 8), values_at("r", 12));
  EXPECT_NE(values_at("r", 1), run("alone", 1, {{"sync", kDiloco}}));
}

// Adam's state, dropout and schedules are those of each rank; step 6 is between two exchanges, and with a delay the
// result of the first one waits for step 6.
TEST_F(ReplicaRuns, ResumesToTheBit) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"diloco", "strategy: diloco, every: 4"},
      {"codec", "strategy: diloco, every: 3, codec: {kind: one_bit}"},
      {"streaming", "strategy: diloco, every: 4, fragments: 2, delay: 3, mix: 0.5"},
      {"gossip", "strategy: noloco, every: 2"},
      {"local", "strategy: local_sgd, every: 4"}};
  for (const auto& [name, keys] : cases) {
    const Changes changes{{"sync", rule(keys)},
                          {"optimizer", "{name: adam, lr: 0.01}"},
                          {"model.dropout", "0.2"},
                          {"precision", name == "diloco" ? "fp16" : "fp32"},
                          {"schedule", "{name: constant, warmup: 5}"}};
    const auto whole = run(name + "whole", 3, changes);
    run(name, 3, changes, "", 6);
    EXPECT_EQ(run(name, 3, changes, path(name)), whole) << name;
    EXPECT_EQ(records(name, "train").back()["nll_nat"], records(name + "whole", "train").back()["nll_nat"]) << name;
  }
}

TEST_F(ReplicaRuns, OtherNumbersOfRanksContinueWhereAllValuesAreEqual) {
  const Changes changes{{"sync", kDiloco}};
  run("equal", 4, changes, "", 8);
  EXPECT_EQ(run("equal", 2, changes, path("equal")).size(), values_at("equal", 8).size());
  run("apart", 4, changes, "", 6);
  EXPECT_THAT(message<UserError>([&] { run("apart", 2, changes, path("apart")); }),
              Names("of 4 ranks", "values differed", "Resume with 4 ranks"));
}

// Validations and checkpoints of ranks that gossip have the mean of the anchors, which costs an all-reduce there alone,
// and changes nothing in training.
TEST_F(ReplicaRuns, RanksThatGossipPublishTheirMean) {
  const Changes changes{{"sync", rule("strategy: noloco, every: 2")}, {"train.log_every", "1"}};
  const auto end = run("seldom", 3, changes);
  Changes often = changes;
  often.insert(often.end(), {{"train.eval_every", "1"}, {"checkpoint.every", "1"}});
  EXPECT_EQ(run("often", 3, often), end);
  EXPECT_EQ(values_at("often", 5), values_at("often", 4));
  EXPECT_NE(values_at("often", 6), values_at("often", 5));
  for (const auto& record : records("seldom", "rank")) {
    const bool published = record.contains("comm/publish/all_gather/sent_bytes");
    EXPECT_EQ(published, record["step"].get<int64_t>() % 6 == 0) << record["step"];
  }
  run("apart", 4, {{"sync", rule("strategy: noloco, every: 2")}}, "", 6);
  EXPECT_THAT(message<UserError>([&] { run("apart", 2, changes, path("apart")); }), Names("of 4 ranks"));
}

TEST_F(ReplicaRuns, ExchangesOnlyEveryFewSteps) {
  run("r", 4, {{"sync", kDiloco}, {"train.log_every", "1"}});
  const auto elements = static_cast<double>(values_at("r", 12).size());
  for (const auto& record : records("r", "rank")) {
    const double sent =
        record.value("comm/all/all_to_all/sent_bytes", 0.0) + record.value("comm/all/all_gather/sent_bytes", 0.0);
    const bool due = record["step"].get<int64_t>() % 4 == 0;
    EXPECT_NEAR(sent, due ? 8 * elements * 3 / 4 : 0, due ? 32 : 0) << record["step"];
  }
}

// The record of a step with an exchange has its time, which contains the spans of the trace.
TEST_F(ReplicaRuns, RecordsCountTheTimeOfExchanges) {
  RunOptions options;
  options.trace_file = path("trace.json");
  run_recipe(recipe_in("r", 2, str(kWordRecipe, kTraining),
                       {{"batch.global", "8"}, {"sync", kDiloco}, {"train.log_every", "1"}}),
             "replicas", options);
  double recorded = 0, traced = 0;
  for (const auto& record : records("r", "train")) {
    const bool due = record["step"].get<int64_t>() % 4 == 0;
    EXPECT_EQ(record["comm_s"] > 0, due) << record["step"];
    EXPECT_EQ(record["comm_exposed_s"] > 0, due) << record["step"];
    recorded += record["comm_s"].get<double>();
  }
  int64_t spans = 0;
  const auto trace = nlohmann::json::parse(read_all(path("trace.json")));
  for (const auto& span : trace["traceEvents"]) {
    if (span["name"] != "sync" || span["pid"] != 0 || span["tid"] == Tracer::kDeviceRow) continue;
    traced += 1e-6 * span["dur"].get<double>();
    ++spans;
  }
  EXPECT_EQ(spans, 3);
  EXPECT_GT(traced, 0);
  EXPECT_GE(recorded, traced - 1e-5);  // the trace is rounded
}

TEST_F(ReplicaRuns, AnErrorOfOneRankEndsAllOfThem) {
  EXPECT_THAT(message<RunError>([&] {
                run("d", 3, {{"sync", kDiloco}, {"train.max_loss", "0.01"}});
              }),
              Names("train.max_loss"));
  run("s", 2, {{"sync", kDiloco}, {"train.max_loss", "0.01"}, {"train.on_divergence", "skip"}});
  EXPECT_EQ(records("s", "train").back()["skipped"], 2 * 4);
}

TEST_F(ReplicaRuns, RefusesWhatCannotBeRight) {
  EXPECT_THAT(error(2, {{"sync",
                         "{tables: {params: 'embedding', strategy: allreduce}, rest: {params: '.*', strategy: "
                         "diloco}}"}}),
              Names("strategy diloco", "strategy allreduce", "rules of one kind"));
  EXPECT_THAT(error(9, {{"sync", kDiloco}}), Names("9 ranks", "batch.global", "8"));
  EXPECT_THAT(error(2, {{"sync", kDiloco}, {"train.ema", "0.9"}}), Names("train.ema"));
  EXPECT_THAT(error(2, {{"sync", kDiloco}, {"optimizer", "{name: schedule_free}"}}), Names("schedule_free"));
  EXPECT_THAT(error(2, {{"sync", rule("strategy: diloco, every: 4, fragments: 5")}}),
              Names("fragments: 5", "every: 4"));
  EXPECT_THAT(error(2, {{"sync", rule("strategy: diloco, every: 4, delay: 4")}}), Names("delay: 4", "every: 4"));
  EXPECT_FALSE(std::filesystem::exists(path("refused")));
}

}  // namespace
}  // namespace lmx::train
