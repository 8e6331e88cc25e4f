// `lmx plan` of recipes with batch.fit=memory: the sub-batch that the planned machine's memory allows.
#include <set>

#include "plan_command.h"

namespace lmx_test {
namespace {

class PlanFit : public PlanCommand {
 protected:
  PlanFit() {
    std::string recipe = read_file(path("tiny.yaml"));
    const std::string batch = "{global: 8, micro: 4}";
    recipe.replace(recipe.find(batch), batch.size(), "{global: 64}");
    write("tiny.yaml", recipe);
  }
  // Activations are most of the memory of these passes.
  static Words wide(const Words& more = {}) {
    return joined({"--machine", "h100_node", "batcher.sequence_length=20", "model.cells=64", "train.eval_batch=1"},
                  more);
  }
  static int64_t bytes(const Json& row) { return row["memory_bytes"].get<int64_t>(); }
  // The row of one variant on one number of ranks whose passes have this size.
  Json given(const Words& words, const std::string& key, int64_t size) const {
    return rows(path("tiny.yaml"), joined(words, {"batch.fit=none", "batch." + key + "=" + std::to_string(size)}))[0];
  }
};

// The pass is the largest one that takes at most 90 % of the memory: one sequence more takes more.
TEST_F(PlanFit, TakesTheLargestPassForEachRowOfTheTable) {
  constexpr double kMemory = 2e6;
  const Words on = wide({"machine.device.memory_gb=0.002"});
  const Json all = rows(path("tiny.yaml"), joined(on, {"batch.fit=memory", "--ranks", "1,2,8", "model.cells=64,90"}));
  ASSERT_EQ(all.size(), 6u);
  std::set<int64_t> sizes;
  for (const Json& row : all) {
    const auto size = row["micro"].get<int64_t>(), ranks = row["ranks"].get<int64_t>();
    sizes.insert(size);
    EXPECT_FALSE(row["out_of_memory"].get<bool>());
    EXPECT_EQ(row["batch"], 64 * ranks) << "each rank keeps its share";
    EXPECT_EQ(row["passes"], (64 + size - 1) / size);
    EXPECT_LE(static_cast<double>(bytes(row)), 0.9 * kMemory);
    const Words same = joined(on, {row["variant"].get<std::string>(), "--ranks", std::to_string(ranks)});
    Json by_hand = given(same, "micro", size);
    EXPECT_EQ(bytes(by_hand), bytes(row));
    EXPECT_EQ(by_hand["step_s"], row["step_s"]);
    EXPECT_FALSE(by_hand.contains("micro"));
    EXPECT_GT(static_cast<double>(bytes(given(same, "micro", size + 1))), 0.9 * kMemory) << row;
  }
  EXPECT_GT(sizes.size(), 1u) << "the variants need different memory";
  const Json large = rows(path("tiny.yaml"), wide({"batch.fit=memory"}))[0];
  EXPECT_EQ(large["micro"], 64) << "80 GB have room for the share of a rank";
  EXPECT_EQ(large["passes"], 1);
}

TEST_F(PlanFit, OutOfMemoryOnlyIfNotEvenTheSmallestPassFits) {
  // Passes of one sequence are not the smallest ones in memory, because each keeps its rows of a table's gradient.
  int64_t least = bytes(given(wide(), "micro", 1));
  for (const int64_t size : {2, 4, 8, 16, 32, 64}) least = std::min(least, bytes(given(wide(), "micro", size)));
  const auto row = [&](double bytes_there) {
    return rows(path("tiny.yaml"),
                wide({"batch.fit=memory", "machine.device.memory_gb=" + std::to_string(bytes_there / 1e9)}))[0];
  };
  EXPECT_FALSE(row(1.01 * static_cast<double>(least) / 0.9)["out_of_memory"].get<bool>());
  const Json small = row(0.99 * static_cast<double>(least) / 0.9);
  EXPECT_TRUE(small["out_of_memory"].get<bool>());
  EXPECT_EQ(bytes(small), least);
}

TEST_F(PlanFit, TheRecipeLimitsTheChoice) {
  EXPECT_EQ(rows(path("tiny.yaml"), wide({"batch.fit=memory", "batch.micro=5"}))[0]["micro"], 5);
  const Json budget = rows(path("tiny.yaml"), wide({"batch.fit=memory", "memory.budget=0.001"}))[0];
  EXPECT_LE(bytes(budget), 1'000'000);
  EXPECT_GT(bytes(given(wide(), "micro", budget["micro"].get<int64_t>() + 1)), 1'000'000);
  // A budget beyond the machine's memory does not enlarge it.
  const Json small =
      rows(path("tiny.yaml"), wide({"batch.fit=memory", "memory.budget=1", "machine.device.memory_gb=0.001"}))[0];
  EXPECT_EQ(small["micro"], budget["micro"]);
}

// Without batch.global, each rank computes one pass, as large as it can be.
TEST_F(PlanFit, ChoosesTheWholeBatchForEachNumberOfRanks) {
  const Words on = wide({"machine.device.memory_gb=0.002", "~batch.global", "batch.fit=memory"});
  for (const Json& row : rows(path("tiny.yaml"), joined(on, {"--ranks", "1,4", "data.train_tokens=2000000"}))) {
    EXPECT_EQ(row["passes"], 1);
    EXPECT_EQ(row["batch"], row["ranks"].get<int64_t>() * row["micro"].get<int64_t>());
    EXPECT_GT(row["micro"], 1);
  }
  // The text limits the batch if the memory does not: 20,000 tokens are 100 steps of 9 sequences.
  const Words large = wide({"~batch.global", "batch.fit=memory"});
  EXPECT_EQ(rows(path("tiny.yaml"), joined(large, {"data.train_tokens=20000"}))[0]["batch"], 9);
  EXPECT_EQ(rows(path("tiny.yaml"), joined(large, {"--epoch-tokens", "40000"}))[0]["batch"], 19);
}

TEST_F(PlanFit, PassesOfParallelTextAreTargetTokens) {
  const Words on{"--machine", "ott_v100", "--ranks", "8,16", "--epoch-tokens", "1e9"};
  for (const Json& row : rows(shipped("ott_wmt.yaml"), joined(on, {"batch.fit=memory"}))) {
    EXPECT_FALSE(row.contains("micro"));
    EXPECT_GT(row["micro_tokens"], 1000);
    EXPECT_LE(static_cast<double>(bytes(row)), 0.9 * 16e9);
    EXPECT_FALSE(row["out_of_memory"].get<bool>());
  }
}

TEST_F(PlanFit, TheTextShowsTheChoice) {
  const Outcome o = plan(path("tiny.yaml"), wide({"batch.fit=memory", "batch.micro=5", "--ranks", "2"}));
  EXPECT_THAT(o.out, Names("PASS", "PASSES", "5 sequences", "13",
                           "assumed: batch.fit chooses passes that take at most 90 % of the device's memory"));
  EXPECT_THAT(o.out, Not(HasSubstr("(batch.micro)")));
  EXPECT_THAT(plan(path("tiny.yaml"), wide({"batch.fit=memory", "memory.budget=0.5"})).out,
              HasSubstr("at most memory.budget, 500 MB"));
  EXPECT_THAT(plan(path("tiny.yaml"), wide()).out, Not(HasSubstr("PASS")));
  const Outcome mixed = plan(path("tiny.yaml"), wide({"batch.fit=memory,none"}));
  EXPECT_THAT(mixed.out, testing::ContainsRegex("batch.fit=none +1 +64 +- +- "));
  const Outcome csv = plan(path("tiny.yaml"), wide({"batch.fit=memory", "--out", path("plan.csv")}));
  EXPECT_THAT(csv, Succeeds());
  EXPECT_THAT(read_file(path("plan.csv")), Names("micro", "passes"));
}

// The run has chosen its passes; its times are those of these passes.
TEST_F(PlanFit, ARunThatHasChosenIsPlannedWithItsChoice) {
  ASSERT_EQ(run("fitted", {"batch.fit=memory", "batcher.sequence_length=20", "model.cells=64",
                           "train={steps: 6, log_every: 1, eval_every: 6, eval_batch: 1}", "memory.budget=0.002"})
                .code,
            0);
  std::string config = read_file(path("fitted/config.yaml"));
  ASSERT_THAT(config, HasSubstr("fit: memory"));
  // A machine on which even one sequence would be too much.
  const Words planned{
      "--machine", "h100_node", "--ranks", "1", "--from", path("fitted"), "machine.device.memory_gb=0.00001"};
  const double chosen = rows(path("tiny.yaml"), planned)[0]["step_s"];
  config.replace(config.find("fit: memory"), 11, "fit: none");
  write("fitted/config.yaml", config);
  EXPECT_EQ(rows(path("tiny.yaml"), planned)[0]["step_s"], chosen);
}

// A calibration measures the largest pass that takes half of the machine's memory; here the text limits it to 100
// steps.
TEST_F(PlanFit, ACalibrationMeasuresTheChosenPass) {
  ASSERT_THAT(plan(path("tiny.yaml"), {"batcher.sequence_length=20", "data.train_tokens=20000", "~batch.global",
                                       "batch.fit=memory", "--calibrate", path("here.yaml")}),
              Succeeds());
  EXPECT_THAT(read_file(path("here.yaml")), HasSubstr("tokens: " + std::to_string(9 * 20) + "\n"));
}

}  // namespace
}  // namespace lmx_test
