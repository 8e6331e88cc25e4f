// `lmx plan RUN --memory` compares the counted memory of a rank with the memory that a run has recorded. Both steps of
// the runs are counted over their text, so each class agrees. The total of virtual ranks depends a little on how many
// of them compute at one time: a count lets them compute one after the other.
#include <cmath>
#include <sstream>

#include "plan_command.h"

namespace lmx_test {
namespace {

std::string recipe_with(const std::string& sync) {
  return R"(
data: {name: synthetic, vocab_size: 4000, train_tokens: 60000, valid_tokens: 8000, test_tokens: 400, branching: 500, classes: 5}
batcher: {name: random_windows, sequence_length: 20}
batch: {global: 16}
optimizer: {name: adam, lr: 0.001}
train: {steps: 2, log_every: 1, eval_tokens: 200}
threads: 1
model: {name: lstm, embedding: 64, cells: 128}
loss: {name: sampled_softmax, samples: 200}
sync: )" +
         sync + "\n";
}

constexpr const char* kUnique =
    "{input: {params: .*embedding.*, strategy: unique}, rest: {params: '.*', strategy: allreduce}}";

std::string rules(const std::string& input, const std::string& rest) {
  return "{input: {params: .*embedding.*, strategy: " + input +
         "}, output: {params: ^softmax, strategy: seeded, seeds: log2}, rest: {params: '.*', strategy: " + rest + "}}";
}

constexpr double kWithin = 0.02, kTotalWithin = 0.04, kActivationsWithin = 0.02;
// Buffers of a few kilobytes, such as numbers of rows and of losses, are not planned.
constexpr double kSmall = 8192;

class PlanMemory : public PlanCommand {
 protected:
  PlanMemory() { write("tiny.yaml", recipe_with(kUnique)); }

  // Trains on virtual ranks, and returns the comparison.
  Json compared(const std::string& dir, int ranks, Words more) const {
    more.push_back("batch.global=" + std::to_string(16 * ranks));
    if (std::ranges::none_of(more, [](const std::string& word) { return word.starts_with("++comm="); }))
      more.insert(more.end(), {"--ranks", std::to_string(ranks)});
    EXPECT_THAT(run(dir, more), Succeeds());
    const Outcome o = plan(path(dir), {"--memory", "--json"});
    EXPECT_THAT(o, Succeeds());
    return o.code == 0 ? Json::parse(o.out) : Json::object();
  }

  void expect_near(const std::string& dir, int ranks, const Words& more, double total_within = kTotalWithin) const {
    SCOPED_TRACE(dir + " " + testing::PrintToString(more));
    const Json result = compared(dir, ranks, more);
    ASSERT_TRUE(result.contains("classes"));
    for (const auto& [name, one] : result["classes"].items()) {
      const double planned = one["planned_bytes"], measured = one["measured_bytes"];
      if (ranks == 1 && name == "communication") continue;
      const double within = name == "activations" ? kActivationsWithin : name == "total" ? total_within : kWithin;
      EXPECT_NEAR(planned, measured, within * measured + kSmall) << name;
    }
    EXPECT_GT(result["classes"]["total"]["measured_bytes"], 2e6);
    EXPECT_EQ(result["ranks"], ranks);
  }
};

TEST_F(PlanMemory, AgreesWithEachStrategy) {
  expect_near("alone", 1, {});
  int number = 0;
  for (const int ranks : {2, 6})
    for (const std::string& sync :
         {rules("unique", "allreduce"),
          rules("unique, gather: raw, codec: {kind: fp16}", "allreduce, codec: {kind: bf16}"),
          rules("allgather", "allreduce, bucket_mb: 0"), rules("allgather_dense", "allreduce, bucket_mb: 0.1"),
          rules("unique", "one_bit"), rules("allgather, codec: {kind: fp16}", "one_bit, bucket_mb: 0.01")}) {
      write("tiny.yaml", recipe_with(sync));
      expect_near("strategy" + std::to_string(number++), ranks, {});
    }
}

TEST_F(PlanMemory, AgreesWithTwoLevels) {
  for (const std::string codec : {"none", "fp16", "bf16"}) {
    const std::string rest = "allreduce, levels: 2, codec: {kind: " + codec + "}";
    write("tiny.yaml", recipe_with(rules("unique", rest)));
    for (const std::string per_node : {"3", "2"})
      expect_near(codec + per_node, 6, {"++comm={name: virtual, ranks: 6, ranks_per_node: " + per_node + "}"});
  }
}

TEST_F(PlanMemory, AgreesWithABatchInParts) {
  expect_near("parts", 3, {"batch.micro=4"});
}

// A validation before the last record counts; a later one does not.
TEST_F(PlanMemory, AValidationCountsIfItIsRecorded) {
  const Words wide{"train.eval_batch=400", "train.eval_tokens=8000", "train.steps=4"};
  Words early = wide;
  early.push_back("train.eval_every=2");
  const Json late = compared("late", 1, wide), both = compared("early", 1, early);
  const auto activations = [](const Json& r) -> double { return r["classes"]["activations"]["planned_bytes"]; };
  EXPECT_GT(activations(both), 1.2 * activations(late));
  for (const Json& r : {late, both}) {
    const double measured = r["classes"]["activations"]["measured_bytes"];
    EXPECT_NEAR(activations(r), measured, 0.2 * measured);
  }
}

TEST_F(PlanMemory, ExitsWithThreeBeyondTheLimit) {
  ASSERT_THAT(run("a", {"--ranks", "2"}), Succeeds());
  const Outcome o = plan(path("a"), {"--memory"});
  EXPECT_THAT(o, Succeeds());
  for (const char* word : {"CLASS", "parameters", "communication", "total", "2 ranks, until step 2"})
    EXPECT_THAT(o.out, testing::HasSubstr(word));
  // As if the run had needed a tenth more than it did.
  std::istringstream records(read_file(path("a/metrics.jsonl")));
  std::string edited;
  for (std::string line; std::getline(records, line);) {
    Json record = Json::parse(line);
    for (auto& [key, value] : record.items())
      if (key.starts_with("memory/")) value = 1.1 * value.get<double>();
    edited += record.dump() + "\n";
  }
  write("a/metrics.jsonl", edited);
  EXPECT_EQ(plan(path("a"), {"--memory", "--within", "0.05"}).code, 3);
  EXPECT_EQ(plan(path("a"), {"--memory", "--within", "0.2"}).code, 0);
}

TEST_F(PlanMemory, RefusesWhatIsNoRun) {
  for (const Words& more : {Words{"--memory"}, Words{"--memory", "train.steps=3"}, Words{"--memory", "--ranks", "2"}}) {
    EXPECT_THAT(plan(path("nothing"), more), Refuses("[plan]"));
  }
}

// Activation checkpointing in a plan. The products that it computes again: CountedProducts.

class PlanRecomputation : public PlanCommand {
 protected:
  double planned_s(const Words& more) const {
    const Json all = rows(path("tiny.yaml"), joined(more, {"--machine", "xiao_k40", "--ranks", "1"}));
    return all.at(0)["compute_s"];
  }
};

// Values that are computed again are also moved again, so checkpointing never makes a pass faster.
TEST_F(PlanRecomputation, CostsTimeInEachLimit) {
  for (const std::string limit : {"machine.device.peak_tflops.fp32=0.001", "machine.device.memory_gb_s=0.001"})
    EXPECT_GT(planned_s({limit, "model.checkpoint=true"}), 1.1 * planned_s({limit, "model.checkpoint=false"})) << limit;
}

}  // namespace

}  // namespace lmx_test
