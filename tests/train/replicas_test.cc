// Runs of ranks that have their own values between synchronisations: of all parameters, or of some, beside rules that
// sum gradients (mixed_rules_test.cc has their single steps).
#include <nlohmann/json.hpp>

#include "app/run/run.h"
#include "runfiles/checkpoint.h"
#include "train/run_folder.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

// Appended to kWordRecipe.
constexpr const char* kReplicaTraining = R"(
model: {name: lstm, embedding: 8, cells: 10}
loss: {name: full_softmax}
optimizer: {name: sgd, lr: 0.5}
schedule: {name: constant}
clip: 0
train: {steps: 12, log_every: 4, eval_every: 6}
checkpoint: {every: 6, keep_last: 20}
)";

std::string replica_rule(const std::string& keys) {
  return "{all: {params: '.*', " + keys + "}}";
}
// The tables are summed, the LSTM has own values.
std::string mixed_rule(const std::string& keys, const std::string& tables = "strategy: unique") {
  return "{tables: {params: 'embedding|softmax', " + tables + "}, all: {params: '.*', " + keys + "}}";
}
const std::string kDiloco = replica_rule("strategy: diloco, every: 4"), kSums = replica_rule("strategy: allreduce");

class ReplicaRuns : public RunFolderTest {
 protected:
  static Changes with_batch(Changes changes) {
    changes.emplace_back("batch.global", "8");
    return changes;
  }
  std::vector<float> run(const std::string& dir, int64_t ranks, const Changes& changes, const std::string& resume = "",
                         int64_t until = 0) {
    const Node recipe = recipe_in(dir, ranks, str(kWordRecipe, kReplicaTraining), with_batch(changes));
    return values_at(dir, run_recipe(recipe, "replicas", {.resume = resume, .until_step = until}).steps);
  }
  // The values of the parameters whose names begin with `prefix`.
  std::vector<float> values_at(const std::string& dir, int64_t step, const std::string& prefix = "") const {
    const TrainState state = load_checkpoint(str(path(dir), "/checkpoints/step-", step), Allocator::cpu());
    std::vector<float> all;
    for (const auto& [name, t] : with_prefix(state.model, prefix))
      all.insert(all.end(), t.values<float>().begin(), t.values<float>().end());
    return all;
  }
  double sent(const nlohmann::json& record, const std::string& rule) const {
    return record.value("comm/" + rule + "/all_to_all/sent_bytes", 0.0) +
           record.value("comm/" + rule + "/all_gather/sent_bytes", 0.0);
  }
  std::string error(int64_t ranks, const Changes& changes) {
    return user_error([&] { run("refused", ranks, changes); });
  }
};

// The mean of the ranks' values after one step of SGD is the step with the mean gradient.
TEST_F(ReplicaRuns, AnExchangeAfterEveryStepEqualsAllReduce) {
  const auto together = run("together", 4, {{"sync", kSums}});
  expect_near(run("local", 4, {{"sync", replica_rule("strategy: local_sgd, every: 1")}}), together, 1e-5f);
  expect_near(run("outer", 4, {{"sync", replica_rule("strategy: diloco, every: 1, outer_lr: 1, outer_momentum: 0")}}),
              together, 1e-5f);
  EXPECT_NEAR(records("outer", "train").back()["nll_nat"], records("together", "train").back()["nll_nat"], 1e-4);
}

TEST_F(ReplicaRuns, BesideSumsAsWell) {
  const std::string outer = "strategy: diloco, every: 1, outer_lr: 1, outer_momentum: 0";
  int number = 0;
  const auto expect_together = [&](const std::string& tables, const Changes& changes) {
    for (const int64_t ranks : {1, 4}) {  // equal parts of the batch
      Changes together = changes, mixed = changes;
      together.emplace_back("sync", mixed_rule("strategy: allreduce", tables));
      mixed.emplace_back("sync", mixed_rule(outer, tables));
      const std::string dir = str("run", number++);
      expect_near(run(dir, ranks, mixed), run(dir + "together", ranks, together), 1e-5f);
      const double loss = records(dir + "together", "train").back()["nll_nat"];
      EXPECT_NEAR(records(dir, "train").back()["nll_nat"], loss, 1e-4) << dir;
    }
  };
  expect_together("strategy: unique", {});
  const std::string sampled = "{name: sampled_softmax, samples: 12}";
  expect_together("strategy: seeded", {{"loss", sampled}});
  expect_together("strategy: sampled_rows", {{"loss", sampled}, {"batch.micro", "1"}});
  expect_together("strategy: allreduce",
                  {{"loss", "{name: full_softmax, tie: embedding.weight}"}, {"model.projection", "8"}});
  expect_together("strategy: zero", {{"model", "{name: gpt, layers: 1, d: 16, heads: 2, ffn: 24}"}});
}

// A single rank divides its gradients as all ranks together do.
TEST_F(ReplicaRuns, OneRankHasTheBitsOfAllReduce) {
  const Changes clipped{{"clip", "[{params: 'embedding|softmax', norm: 0.05}, {params: lstm, norm: 0.01}]"},
                        {"optimizer", "{name: adam, lr: 0.01}"},
                        {"precision", "fp16"}};
  Changes together = clipped, mixed = clipped;
  together.emplace_back("sync", mixed_rule("strategy: allreduce"));
  mixed.emplace_back("sync", mixed_rule("strategy: local_sgd, every: 4"));
  EXPECT_EQ(run("mixed", 1, mixed), run("together", 1, together));
  const nlohmann::json own = records("mixed", "train").back(), all = records("together", "train").back();
  EXPECT_EQ(own["nll_nat"], all["nll_nat"]);
  EXPECT_EQ(own["loss_scale"], all["loss_scale"]);
  EXPECT_DOUBLE_EQ(own["grad_norm"], all["grad_norm"]);
}

// Between exchanges, validations and checkpoints see the values of the last one.
TEST_F(ReplicaRuns, TheAnchorsChangeOnlyAtExchanges) {
  run("r", 2, {{"sync", kDiloco}, {"checkpoint.every", "1"}});
  EXPECT_EQ(values_at("r", 4), values_at("r", 7));
  EXPECT_NE(values_at("r", 4), values_at("r", 8));
  EXPECT_NE(values_at("r", 8), values_at("r", 12));
  EXPECT_NE(values_at("r", 1), run("alone", 1, {{"sync", kDiloco}}));
  run("m", 2, {{"sync", mixed_rule("strategy: diloco, every: 4")}, {"checkpoint.every", "1"}});
  for (const int64_t step : {5, 6, 7, 8}) {
    EXPECT_EQ(values_at("m", step, "lstm") == values_at("m", 4, "lstm"), step < 8) << step;
    EXPECT_NE(values_at("m", step, "embedding"), values_at("m", step - 1, "embedding")) << step;
  }
}

// Adam's state, dropout and schedules are those of each rank; step 6 is between two exchanges, and with a delay the
// result of the first one waits for step 6.
TEST_F(ReplicaRuns, ResumesToTheBit) {
  int number = 0;
  const std::vector<std::pair<std::string, std::string>> cases{
      {"diloco", "strategy: diloco, every: 4"},
      {"codec", "strategy: diloco, every: 3, codec: {kind: one_bit}"},
      {"streaming", "strategy: diloco, every: 4, fragments: 2, delay: 3, mix: 0.5"},
      {"gossip", "strategy: noloco, every: 2"},
      {"local", "strategy: local_sgd, every: 4"}};
  for (const auto& [strategy, keys] : cases) {
    const std::string tables = strategy == "local" ? "strategy: one_bit" : "strategy: unique";
    for (const std::string& rules : {replica_rule(keys), mixed_rule(keys, tables)}) {
      const Changes changes{{"sync", rules},
                            {"optimizer", "{name: adam, lr: 0.01}"},
                            {"model.dropout", "0.2"},
                            {"clip", "0.05"},
                            {"precision", strategy == "diloco" ? "fp16" : "fp32"},
                            {"schedule", "{name: constant, warmup: 5}"}};
      const std::string name = str(strategy, number++);
      const auto whole = run(name + "whole", 3, changes);
      run(name, 3, changes, "", 6);
      EXPECT_EQ(run(name, 3, changes, path(name)), whole) << name;
      for (const char* value : {"nll_nat", "grad_norm"})
        EXPECT_EQ(records(name, "train").back()[value], records(name + "whole", "train").back()[value]) << name;
    }
  }
}

// A pause does not change a record whose last step overflows: with this scale every second one does.
TEST_F(ReplicaRuns, PausesLeaveNoTrace) {
  const std::string local = replica_rule("strategy: local_sgd, every: 4");
  const Changes fp16{{"precision", "fp16"}, {"loss_scale", "{init: 1048576, window: 1}"}, {"train.log_every", "3"}};
  const auto with = [](const std::string& sync, Changes changes) {
    changes.emplace_back("sync", sync);
    return changes;
  };
  const auto train = [&](const std::string& dir) {
    std::vector<nlohmann::json> all = records(dir, "train");
    for (nlohmann::json& record : all)
      for (const char* timed : {"step_s", "words_per_s", "comm_s", "comm_exposed_s"}) record.erase(timed);
    return all;
  };
  const auto count = [&](const std::string& dir, const char* key) {
    int64_t sum = 0;
    for (const nlohmann::json& record : train(dir)) sum += record.value(key, int64_t{0});
    return sum;
  };
  int number = 0;
  for (const Changes& changes : {with(local, fp16), with(kSums, fp16)}) {
    const std::string name = str("run", number++), whole = name + "whole";
    const auto expected = run(whole, 3, changes);
    EXPECT_GT(count(whole, "overflows"), 2) << name;
    for (const int64_t until : {2, 5, 8, 11}) run(name, 3, changes, until == 2 ? "" : path(name), until);
    EXPECT_EQ(run(name, 3, changes, path(name)), expected) << name;
    EXPECT_EQ(train(name), train(whole)) << name;
    const auto state = [&](const std::string& dir) {
      std::map<std::string, std::string> numbers =
          load_checkpoint(path(dir + "/checkpoints/step-12"), Allocator::cpu()).numbers;
      std::erase_if(numbers, [](const auto& n) { return !n.first.starts_with("loss_scale"); });
      return numbers;
    };
    EXPECT_EQ(state(name), state(whole)) << name;
  }
}

// The anchors are still finite, but the next step of a rank would not be.
TEST_F(ReplicaRuns, OwnValuesThatAreNotFiniteGetNoCheckpoint) {
  for (const std::string& sync : {kDiloco, replica_rule("strategy: noloco, every: 4"), kSums}) {
    const Changes changes{{"sync", sync}, {"optimizer.lr", "3e39"}, {"checkpoint.every", "1"}};
    EXPECT_THAT(run_error([&] { run("inf", 2, changes); }), Names("step 1", "not finite any more")) << sync;
    EXPECT_TRUE(list_checkpoints(path("inf")).empty()) << sync;
    std::filesystem::remove_all(path("inf"));
  }
}

TEST_F(ReplicaRuns, OtherNumbersOfRanksContinueWhereAllValuesAreEqual) {
  int number = 0;
  for (const std::string& rules : {kDiloco, mixed_rule("strategy: diloco, every: 4")}) {
    const Changes changes{{"sync", rules}, {"optimizer", "{name: adam, lr: 0.01}"}};
    const std::string equal = str("equal", number), apart = str("apart", number++);
    run(equal, 4, changes, "", 8);
    EXPECT_EQ(run(equal, 2, changes, path(equal)).size(), values_at(equal, 8).size());
    run(apart, 4, changes, "", 6);
    EXPECT_THAT(user_error([&] { run(apart, 2, changes, path(apart)); }),
                Names("separate values of 4 ranks", "Resume with 4 ranks"));
  }
}

// Validations and checkpoints of ranks that gossip have the mean of the anchors, which costs an all-reduce there alone,
// and changes nothing in training.
TEST_F(ReplicaRuns, RanksThatGossipPublishTheirMean) {
  const std::string gossip = "strategy: noloco, every: 2";
  for (const std::string& rules : {replica_rule(gossip), mixed_rule(gossip)}) {
    const std::string name = rules == replica_rule(gossip) ? "all" : "some";
    const Changes changes{{"sync", rules}, {"train.log_every", "1"}};
    const auto end = run(name + "seldom", 3, changes);
    Changes often = changes;
    often.insert(often.end(), {{"train.eval_every", "1"}, {"checkpoint.every", "1"}});
    EXPECT_EQ(run(name + "often", 3, often), end);
    EXPECT_EQ(values_at(name + "often", 5, "lstm"), values_at(name + "often", 4, "lstm"));
    EXPECT_NE(values_at(name + "often", 6, "lstm"), values_at(name + "often", 5, "lstm"));
    for (const auto& record : records(name + "seldom", "rank")) {
      const bool published = record.contains("comm/publish/all_gather/sent_bytes");
      EXPECT_EQ(published, record["step"].get<int64_t>() % 6 == 0) << record["step"];
    }
    run(name + "apart", 4, {{"sync", rules}}, "", 6);
    EXPECT_THAT(user_error([&] { run(name + "apart", 2, changes, path(name + "apart")); }), Names("of 4 ranks"));
  }
}

TEST_F(ReplicaRuns, ExchangesOnlyEveryFewSteps) {
  run("r", 4, {{"sync", kDiloco}, {"train.log_every", "1"}});
  run("m", 4, {{"sync", mixed_rule("strategy: diloco, every: 4")}, {"train.log_every", "1"}});
  for (const auto& [dir, params] : {std::pair("r", ""), {"m", "lstm"}}) {
    const auto elements = static_cast<double>(values_at(dir, 12, params).size());
    for (const auto& record : records(dir, "rank")) {
      const bool due = record["step"].get<int64_t>() % 4 == 0;
      EXPECT_NEAR(sent(record, "all"), due ? 8 * elements * 3 / 4 : 0, due ? 32 : 0) << record["step"];
      EXPECT_EQ(sent(record, "tables") > 0, std::string(dir) == "m") << record["step"];
    }
  }
}

// The record of a step with an exchange has its time, which contains the spans of the trace.
TEST_F(ReplicaRuns, RecordsCountTheTimeOfExchanges) {
  RunOptions options;
  options.trace_file = path("trace.json");
  run_recipe(recipe_in("r", 2, str(kWordRecipe, kReplicaTraining),
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
  const auto trace = nlohmann::json::parse(lmx_test::read_file(path("trace.json")));
  for (const auto& span : trace["traceEvents"]) {
    if (span["name"] != "sync" || span["pid"] != 0 || span["tid"] == Tracer::kDeviceRow) continue;
    traced += 1e-6 * span["dur"].get<double>();
    ++spans;
  }
  EXPECT_EQ(spans, 3);
  EXPECT_GT(traced, 0);
  EXPECT_GE(recorded, traced - 1e-5);  // the trace is rounded
}

TEST_F(ReplicaRuns, TablesMayHaveOwnValuesWhileTheRestIsSummed) {
  run("t", 2,
      {{"sync",
        "{all: {params: embedding, strategy: local_sgd, every: 4}, rest: {params: '.*', strategy: allreduce}}"}});
  EXPECT_NE(values_at("t", 6, "embedding"), values_at("t", 12, "embedding"));
  const double rows = records("t", "train").back()["rows/embedding.weight"];  // 4 sequences of 5 words on a rank
  EXPECT_GT(rows, 1);
  EXPECT_LE(rows, 4 * 5);
}

TEST_F(ReplicaRuns, AnErrorOfOneRankEndsAllOfThem) {
  EXPECT_THAT(run_error([&] {
                run("d", 3, {{"sync", kDiloco}, {"train.max_loss", "0.01"}});
              }),
              Names("train.max_loss"));
  run("s", 2, {{"sync", kDiloco}, {"train.max_loss", "0.01"}, {"train.on_divergence", "skip"}});
  EXPECT_EQ(records("s", "train").back()["skipped"], 2 * 4);
  run("m", 2,
      {{"sync", mixed_rule("strategy: local_sgd")}, {"train.max_loss", "0.01"}, {"train.on_divergence", "skip"}});
  EXPECT_EQ(records("m", "train").back()["skipped"], 4);
}

TEST_F(ReplicaRuns, RefusesWhatCannotBeRight) {
  EXPECT_THAT(error(2, {{"sync", mixed_rule("strategy: diloco", "strategy: param_server")}}),
              Names("strategy diloco", "strategy param_server is asynchronous"));
  for (const std::string& rules : {kDiloco, mixed_rule("strategy: diloco, every: 4")}) {
    EXPECT_THAT(error(9, {{"sync", rules}}), Names("9 ranks", "batch.global", "8"));
    EXPECT_THAT(error(2, {{"sync", rules}, {"train.ema", "0.9"}}), Names("train.ema"));
    EXPECT_THAT(error(2, {{"sync", rules}, {"optimizer", "{name: schedule_free}"}}), Names("schedule_free"));
  }
  EXPECT_THAT(error(2, {{"sync", replica_rule("strategy: diloco, every: 4, fragments: 5")}}),
              Names("fragments: 5", "every: 4"));
  EXPECT_THAT(error(2, {{"sync", replica_rule("strategy: diloco, every: 4, delay: 4")}}),
              Names("delay: 4", "every: 4"));
  EXPECT_FALSE(std::filesystem::exists(path("refused")));
}

}  // namespace
}  // namespace lmx::app
