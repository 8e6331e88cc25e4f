// Runs of several ranks: N ranks equal one, checkpoints can be resumed with other numbers of ranks, and the ledger
// counts the traffic.
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/run/run.h"
#include "nn/state_dict.h"
#include "runfiles/checkpoint.h"
#include "train/position.h"
#include "train/run_folder.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

// Appended to kWordRecipe.
constexpr const char* kRanksTraining = R"(
model: {name: lstm, embedding: 8, cells: 10, projection: 6, dropout: 0.2}
loss: {name: sampled_softmax, samples: 12}
optimizer: {name: adam, lr: 0.01}
schedule: {name: halve_on_rise}
clip: 0.5
train: {steps: 12, log_every: 4, eval_every: 6, ema: 0.8}
checkpoint: {every: 6, keep_last: 3}
)";

class Ranks : public RunFolderTest {
 protected:
  Node recipe(const std::string& dir, int64_t ranks, const Changes& changes) const {
    return recipe_in(dir, ranks, str(kWordRecipe, kRanksTraining), changes);
  }
  // The parameters after the run; its result is stored. `ranks` 0: without a group.
  std::vector<float> run(const std::string& dir, int64_t ranks, const Changes& changes = {}, const char* resume = "") {
    result_ = run_recipe(recipe(dir, ranks, changes), "ranks", {resume, {}, ""});
    const TrainState state = load_checkpoint(str(path(dir), "/checkpoints/step-", result_.steps), Allocator::cpu());
    std::vector<float> all;
    for (const auto& [name, t] : state.model) all.insert(all.end(), t.values<float>().begin(), t.values<float>().end());
    return all;
  }
  RunResult result_;
};

TEST_F(Ranks, EveryNumberOfRanksEqualsOneToRounding) {
  for (const char* batcher : {"{name: tbptt, sequence_length: 5}", "{name: random_windows, sequence_length: 5}"}) {
    const std::string name = std::string(batcher).substr(7, 3);
    const auto one = run("self" + name, 0, {{"batcher", batcher}});
    const double ppl = result_.valid_ppl;
    for (const int64_t ranks : {1, 2, 3, 4, 6, 8}) {  // 4 divides unevenly, 8 leaves two ranks without a sequence
      expect_near(run(str(name, ranks), ranks, {{"batcher", batcher}}), one, 2e-4f);
      EXPECT_NEAR(result_.valid_ppl, ppl, 2e-2) << ranks;
    }
  }
}

TEST_F(Ranks, OneVirtualRankIsSelfToTheBit) {
  EXPECT_EQ(run("self", 0), run("one", 1));
}

TEST_F(Ranks, TheSameRunTwiceGivesTheSameBits) {
  const auto first = run("a", 5);
  EXPECT_EQ(first, run("b", 5, {{"comm", "{name: virtual, ranks: 5, at_once: 1}"}}));
  EXPECT_EQ(first, run("c", 5, {{"comm", "{name: virtual, ranks: 5, at_once: 5}"}}));
}

// The order of the data is a function of seed and step: a run of 4 ranks can continue with 2 or 8.
TEST_F(Ranks, CheckpointsPassBetweenNumbersOfRanks) {
  const auto whole = run("whole", 4);
  for (const int64_t ranks : {0, 2, 4, 8}) {
    const std::string dir = str("split", ranks);
    run(dir, 4, {{"train.steps", "6"}});
    const auto rest = run(dir, ranks, {}, path(dir).c_str());
    EXPECT_EQ(result_.steps, 12);
    if (ranks == 4) {
      EXPECT_EQ(rest, whole);
    } else {
      expect_near(rest, whole, 2e-4f);
    }
  }
}

// With plain SGD dense and row-sparse gradients give equal parameters, so the EMAs must be equal, too, including those
// of words that no step has read. Validation uses the EMA.
TEST_F(Ranks, AveragesDoNotDependOnHowAStrategySendsRows) {
  const auto averages = [&](const std::string& strategy, const std::string& ema) {
    const std::string rules =
        "{tables: {params: 'embedding|softmax', strategy: " + strategy + "}, rest: {params: .*, strategy: allreduce}}";
    run(strategy + ema, 2,
        {{"sync", rules},
         {"optimizer", "{name: sgd, lr: 2}"},
         {"schedule", "{name: constant}"},
         {"data.vocab_size", "200"},
         {"train.ema", ema}});
    const TrainState state = load_checkpoint(str(path(strategy + ema), "/checkpoints/step-12"), Allocator::cpu());
    std::map<std::string, std::vector<float>> all;
    for (const auto& [name, t] : with_prefix(state.train, kAverages))
      all[name].assign(t.values<float>().begin(), t.values<float>().end());
    return all;
  };
  const auto dense = averages("allgather_dense", "0.8");
  const double dense_ppl = result_.valid_ppl;
  const auto rows = averages("unique", "0.8");
  ASSERT_EQ(rows.size(), dense.size());
  for (const auto& [name, values] : dense) expect_near(rows.at(name), values, 1e-5f);
  EXPECT_NEAR(result_.valid_ppl, dense_ppl, 1e-3 * dense_ppl);
  averages("unique", "0");
  EXPECT_GT(std::abs(result_.valid_ppl - dense_ppl), 1e-2 * dense_ppl);  // validation of the final parameters
}

TEST_F(Ranks, EachRankHasARecordOfItsTrafficAndMemory) {
  run("r", 3);
  const auto ranks = records("r", "rank"), train = records("r", "train");
  ASSERT_EQ(ranks.size(), 9u);  // 3 ranks in each of 3 log steps
  ASSERT_EQ(train.size(), 3u);
  double sent = 0, received = 0;
  for (const auto& r : ranks) {
    for (const auto& [key, value] : r.items()) {
      if (key.ends_with("sent_bytes")) sent += value.get<double>();
      if (key.ends_with("received_bytes")) received += value.get<double>();
    }
    EXPECT_GT(r["memory/parameters_peak_bytes"], 0) << r["rank"];
    EXPECT_GT(r["memory/optimizer_peak_bytes"], 0) << r["rank"];
    EXPECT_GT(r["memory/communication_peak_bytes"], 0) << r["rank"];
    EXPECT_GE(r["memory/total_peak_bytes"], r["memory/parameters_peak_bytes"]);
  }
  EXPECT_GT(sent, 0);
  EXPECT_EQ(sent, received) << "sent and received bytes differ";
}

TEST_F(Ranks, AnErrorOfOneRankEndsTheRunOnce) {
  const auto text = run_error([&] { run("d", 4, {{"train.max_loss", "0.01"}}); });
  EXPECT_THAT(text, Names("train.max_loss"));
  EXPECT_THAT(lmx_test::read_file(path("d/status.json")), HasSubstr("failed"));
  run("s", 4, {{"train.max_loss", "0.01"}, {"train.on_divergence", "skip"}});
  EXPECT_EQ(records("s", "train").back()["skipped"], 4);
}

// A skipped update leaves no part of its gradient for later updates.
TEST_F(Ranks, ErrorFeedbackForgetsUpdatesThatAreLeftOut) {
  const auto kept = [&](const char* dir, const char* part = "") {
    double squares = 0;
    const TrainState state = load_checkpoint(str(path(dir), "/checkpoints/step-", result_.steps), Allocator::cpu());
    for (const StateDict& rank : state.ranks)
      for (const auto& [name, t] : rank)
        if (t.dtype() == DType::f32 && name.find(part) != std::string::npos)
          for (const float v : t.values<float>()) squares += static_cast<double>(v) * static_cast<double>(v);
    return squares;
  };
  const Changes one_bit{{"sync", "{all: {params: '.*', strategy: one_bit}}"}, {"train.steps", "2"}};
  const auto with = [&](Changes more) {
    more.insert(more.begin(), one_bit.begin(), one_bit.end());
    return more;
  };
  run("made", 3, one_bit);
  EXPECT_GT(kept("made"), 0);
  run("skipped", 3, with({{"train.max_loss", "0.01"}, {"train.on_divergence", "skip"}}));
  EXPECT_EQ(records("skipped", "train").back()["skipped"], 2);
  EXPECT_EQ(kept("skipped"), 0);
  // Half precision: the first scales are much too large.
  run("overflow", 3, with({{"precision", "fp16"}, {"loss_scale", "{init: 16777216}"}}));
  EXPECT_EQ(records("overflow", "train").back()["overflows"], 2);
  EXPECT_EQ(kept("overflow"), 0);
  // One rank, which encodes nothing, adds what the ranks before it have kept to its first update that is made.
  const double before = kept("made", "lstm");
  const auto alone = [&](const char* steps, Changes more) {
    more.insert(more.begin(), {one_bit[0], {"train.steps", steps}});
    run("made", 1, more, path("made").c_str());
    return kept("made");
  };
  const Changes skip{{"train.max_loss", "0.01"}, {"train.on_divergence", "skip"}};
  const double once = alone("3", skip);
  EXPECT_GT(kept("made", "lstm"), before / 2);
  EXPECT_EQ(alone("4", skip), once);
  EXPECT_LT(alone("5", {}), once);
  EXPECT_EQ(kept("made", "lstm"), 0);
}

TEST_F(Ranks, Messages) {
  EXPECT_THAT(user_error([&] {
                run("m", 0, {{"comm", "{ranks: 4}"}});
              }),
              Names("comm.ranks", "for 4 ranks give comm.name: virtual"));
  EXPECT_THAT(user_error([&] { run("m", 0, {{"comm", "{name: virtul, ranks: 4}"}}); }), Names("'virtual'?"));
  EXPECT_THAT(user_error([&] { run("m", 0, {{"comm", "{name: virtual, rank: 4}"}}); }), Names("'ranks'?"));
  EXPECT_THAT(user_error([&] { run("m", 0, {{"comm", "{name: virtual, ranks: 0}"}}); }), HasSubstr("comm.ranks"));
  const Changes native{{"comm", "{name: mpi, ranks: 2, reduce: native}"}};
  EXPECT_THAT(user_error([&] { read_recipe(recipe("m", 0, native), "ranks"); }),
              Names("comm.reduce: native", "deterministic", "false"));
  const Changes seeds{{"loss", "{name: full_softmax}"}, {"sync", "{all: {params: '.*', strategy: seeded}}"}};
  EXPECT_THAT(user_error([&] { run("m", 2, seeds); }), Names("sync.all:"));
  EXPECT_FALSE(std::filesystem::exists(path("m")));
}

}  // namespace
}  // namespace lmx::app
