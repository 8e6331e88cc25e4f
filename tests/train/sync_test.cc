// The rules of `sync:` and the order in which their units are exchanged; the group of one rank. tests/sync tests the
// results of strategies.
#include <cmath>

#include "app/inference/evaluate_run.h"
#include "app/run/dry_run.h"
#include "app/run/run.h"
#include "lmx/row_sampling.h"
#include "lmx/sync.h"
#include "recipe/comm_config.h"
#include "recipe/sync_rules.h"
#include "runfiles/checkpoint.h"
#include "train/fixture.h"
#include "train/run_folder.h"

namespace lmx::app {
namespace {

using namespace lmx_test;

class Sync : public testing::Test {
 protected:
  Sync() {
    load_plugins();
    ctx_.comm = self_.get();
  }
  static std::vector<ParameterSpec> specs(const std::vector<std::string>& names) {
    std::vector<ParameterSpec> all;
    for (const std::string& name : names) all.push_back({name, {2}, {}, false});
    return all;
  }
  Node rules(const std::string& yaml) { return parse_yaml(yaml, "r.yaml"); }
  std::string refused(const std::string& yaml) {
    return user_error([&] {
      static_cast<void>(
          make_exchanger(rules(yaml), "sync",
                         SyncEnv{"", specs({"embedding.weight", "lstm.0.bias", "softmax.weight"}), 0, 1, RandomKey()}));
    });
  }
  std::unique_ptr<Communicator> self_ = make_self_communicator(1);
  Context ctx_;
};

TEST(SelfCommunicator, IsTheIdentity) {
  const auto comm = make_self_communicator();
  Tensor t = floats({2}, {1, 2});
  EXPECT_EQ(comm->all_reduce(t, "g").raw(), t.raw());
  EXPECT_EQ(comm->all_gather(t, "g").raw(), t.raw());
  EXPECT_THAT(t.values<float>(), ElementsAre(1, 2));
  ASSERT_EQ(comm->ledger().size(), 2u);
  EXPECT_EQ(comm->ledger()[0].group, "g");
  EXPECT_EQ(comm->ledger()[0].sent + comm->ledger()[0].received, 0);
}

// A rank samples one set of candidates in each step.
TEST_F(Sync, OneRuleAtMostSaysWhoDrawsTheSameCandidates) {
  const auto of = [&](const char* a, const char* b) {
    return refused(str("a: {params: 'embedding', ", a, "}\nb: {params: 'softmax', ", b,
                       "}\nrest: {params: '.*', strategy: allreduce}"));
  };
  EXPECT_THAT(of("strategy: seeded", "strategy: seeded, seeds: one"), Names("sync.a", "sync.b", "candidates"));
  EXPECT_THAT(of("strategy: seeded", "strategy: sampled_rows"), Names("sync.a", "sync.b"));
  EXPECT_EQ(of("strategy: seeded", "strategy: sampled_rows, draw: step"), "no error");
  EXPECT_EQ(of("strategy: unique", "strategy: seeded"), "no error");
}

TEST_F(Sync, GroupsOfSeedsNeedALossThatDraws) {
  const auto seeded = make_exchanger(rules("all: {params: '.*', strategy: seeded}"), "sync",
                                     SyncEnv{"", specs({"softmax.weight"}), 0, 2, RandomKey()});
  const auto loss = [](const std::string& yaml) {
    return make_loss(parse_yaml(yaml, "r"), "loss", LossEnv{.vocab_size = 50, .feature_size = 4});
  };
  const auto draws_none = loss("{name: full_softmax}"), two_stage = loss("{name: two_stage_softmax}");
  EXPECT_THAT(user_error([&] { seeded->check_loss(*draws_none); }),
              Names("sync.all", "sampled_softmax", "two_stage_softmax"));
  seeded->check_loss(*two_stage);
  const auto rows = make_exchanger(rules("all: {params: '.*', strategy: sampled_rows}"), "sync",
                                   SyncEnv{"", specs({"softmax.weight"}), 0, 2, RandomKey()});
  rows->check_loss(*draws_none);  // the loss also samples rows
  rows->check_loss(*two_stage);
  // The rule already selects the rows of this loss.
  const auto own = loss("{name: two_stage_softmax, p: 60, q: 10}");
  seeded->check_loss(*own);
  EXPECT_EQ(user_error([&] { rows->check_loss(*own); }),
            "[loss] loss.p 60 and q 10: sync.all selects the softmax's rows, by its own p and q; give them there, and "
            "leave these out");
}

TEST_F(Sync, FirstMatchWins) {
  const auto both = make_exchanger(
      rules("tables: {params: 'embedding|softmax', strategy: allreduce}\nrest: {params: '.*', strategy: allreduce}"),
      "sync", SyncEnv{"", specs({"embedding.weight", "lstm.0.bias"}), 0, 1, RandomKey()});
  ParameterStore params;
  StepPlan plan;
  for (const ParameterSpec& spec : specs({"embedding.weight", "lstm.0.bias"})) params.add(ctx_, spec, RandomKey(1));
  both->begin_step(ctx_, params, {}, plan);
  for (const std::string& name : params.names()) {
    params.at(name).grad().dense = floats({2}, {3, 4});
    both->grad_ready(params.at(name));
  }
  both->finish();
  for (const std::string& name : params.names())
    EXPECT_THAT(params.at(name).grad().dense.values<float>(), ElementsAre(3, 4));
  EXPECT_TRUE(both->state().empty());
}

// Two ranks whose backward passes finish parameters in different orders, one of them without some parameters: all units
// are exchanged in one order.
TEST_F(Sync, UnitsGoInOneOrderOnAllRanks) {
  const auto group = make_comm_group(rules("{name: virtual, ranks: 2}"), "comm", {});
  group->run([&](Communicator& comm) {
    Context ctx = ctx_;
    ctx.comm = &comm;
    ctx.rank = comm.rank();
    ctx.ranks = comm.size();
    ctx.allocator = comm.allocator();
    const auto all = specs({"a", "b", "c", "d"});
    const auto one = make_exchanger(
        rules("{x: {params: 'a|c', strategy: allreduce, bucket_mb: 0}, y: {params: '.*', strategy: unique}}"), "sync",
        SyncEnv{"", all, comm.rank(), comm.size(), RandomKey()});
    ParameterStore params;
    StepPlan plan;
    for (const ParameterSpec& spec : all) params.add(ctx, spec, RandomKey(1));
    one->begin_step(ctx, params, {}, plan);
    const std::vector<std::string> order =
        comm.rank() == 0 ? std::vector<std::string>{"d", "c", "b", "a"} : std::vector<std::string>{"a", "c"};
    for (const std::string& name : order) {
      params.at(name).grad().dense = floats({2}, {1, static_cast<float>(name[0])});
      one->grad_ready(params.at(name));
    }
    one->finish();
    for (const std::string& name : params.names()) {
      const float ranks = name == "a" || name == "c" ? 2 : 1;
      EXPECT_THAT(params.at(name).grad().dense.values<float>(), ElementsAre(ranks, ranks * static_cast<float>(name[0])))
          << name;
    }
  });
}

TEST_F(Sync, Messages) {
  EXPECT_THAT(refused("a: {params: lstm, strategy: allreduce}"), Names("no rule", "softmax.weight"));
  EXPECT_THAT(refused("a: {params: '.*', strategy: allreduce}\nb: {params: x, strategy: allreduce}"),
              Names("r.yaml:2:13: sync.b.params:", "'x'", "sync.a (r.yaml:1:4)"));
  EXPECT_THAT(refused("a: {params: '.*', strategy: allreduce}\nb: {params: lsmt, strategy: allreduce}"),
              Names("sync.b.params:", "'lsmt'", "embedding.weight, lstm.0.bias, softmax.weight"));
  EXPECT_THAT(refused("a: {params: '.*', strategy: alreduce}"), Names("'allreduce'?"));
  EXPECT_THAT(refused("a: {params: '.*', name: allreduce}"), Names("'strategy'?"));
  EXPECT_THAT(refused("a: 3"), Names("rule"));
  EXPECT_THAT(refused("3"), Names("rules"));
  EXPECT_THAT(refused("a: {params: '[', strategy: allreduce}"), Names("r.yaml:1:13: sync.a.params: '['"));
}

// Names become parts of the keys of records ("a/bits") and of tensor names in checkpoints.
TEST_F(Sync, NamesOfRulesAreIdentifiers) {
  for (const char* name : {"'a\"b'", "a/b", "a-b", "2a", "'a b'", "größe"})
    EXPECT_THAT(refused(str(name, ": {params: '.*', strategy: allreduce}")), Names("r.yaml:1:1: sync:", "name"))
        << name;
  EXPECT_EQ(refused("_Rest_2: {params: '.*', strategy: allreduce}"), "no error");
}

TEST_F(Sync, FullConfigKeepsParamsFirst) {
  const Node full = full_sync_config(rules("rest: {strategy: allreduce, params: x}"), "sync");
  EXPECT_THAT(full.find("rest")->keys(), ElementsAre("params", "strategy", "bucket_mb", "levels", "codec"));
}

// Batchers whose steps have sequences shorter than sequence_length(): gradients are the mean over the tokens of the
// step, records count these tokens, and contradictory sizes are rejected.

constexpr const char* kLengthsRecipe = R"(
data: {name: synthetic, vocab_size: 40, train_tokens: 3000, valid_tokens: 600, test_tokens: 0, branching: 6, classes: 4}
batch: {global: 8}
model: {name: lstm, embedding: 8, cells: 10, projection: 6}
optimizer: {name: sgd, lr: 0.5}
train: {steps: 6, log_every: 1, eval_every: 6, eval_batch: 4, eval_carry: false}
run: {tensorboard: false}
threads: 1
)";

class Lengths : public RunFolderTest {
 protected:
  Lengths() { Registry::instance().add_directory(lmx_test::build_path("/tests/train_plugins")); }
  Node recipe(const std::string& dir, const std::string& batcher, const std::string& more = "") const {
    Node tree = parse_yaml(str(kLengthsRecipe, "batcher: ", batcher, "\n", more), "lengths.yaml");
    if (!tree.find("loss")) tree.set("loss", parse_yaml("{name: full_softmax}", "change"));
    tree.find("run")->set("dir", Node::string(path(dir)));
    return tree;
  }
  RunResult run(const std::string& dir, const std::string& batcher, const std::string& more = "") const {
    return run_recipe(recipe(dir, batcher, more), "lengths", {});
  }
  std::string model(const std::string& dir) const {
    return lmx_test::read_file(path(dir) + "/checkpoints/step-6/model.safetensors");
  }
  std::string refused(const std::string& batcher, const std::string& more = "") const {
    return user_error([&] { run("refused", batcher, more); });
  }
};

// Loss and gradient do not depend on the longest window of the run.
TEST_F(Lengths, GradientsAreTheMeanOverTheTokensOfTheStep) {
  for (const char* normalize : {"token", "sequence"}) {
    const std::string loss = str("loss: {name: full_softmax, normalize: ", normalize, "}");
    run("exact", "{name: growing, shortest: 8, longest: 8, declares: nothing}", loss);
    run("long", "{name: growing, shortest: 8, longest: 64, every: 1000}", loss);
    const auto exact = records("exact", "train"), longer = records("long", "train");
    ASSERT_EQ(exact.size(), 6u);
    EXPECT_GT(exact[0]["grad_norm"], 0.01) << normalize;
    EXPECT_EQ(exact[0]["grad_norm"], longer[0]["grad_norm"]) << normalize;  // the windows of step 0 are the same
    for (const char* dir : {"exact", "long"}) std::filesystem::remove_all(path(dir));
  }
}

TEST_F(Lengths, AGrowingWindowCounts) {
  run("grown", "{name: growing, shortest: 3, longest: 6, every: 2}");
  const auto steps = records("grown", "train");
  ASSERT_EQ(steps.size(), 6u);
  const std::vector<int64_t> tokens{24, 48, 80, 112, 152, 192};  // 8 windows of 3, 3, 4, 4, 5 and 5
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i]["tokens"], tokens[i]) << i;
  // Several ranks and micro-batches divide by the same number.
  run("micro", "{name: growing, shortest: 3, longest: 6, every: 2}", "comm: {name: virtual, ranks: 2}");
  const auto ranks = records("micro", "train");
  for (size_t i = 0; i < steps.size(); ++i)
    EXPECT_NEAR(ranks[i]["grad_norm"].get<double>(), steps[i]["grad_norm"].get<double>(), 1e-5) << i;
}

TEST_F(Lengths, ContradictionsAreRefused) {
  EXPECT_THAT(refused("{name: growing, shortest: 8, longest: 64, every: 1000, declares: nothing}"),
              Names("[batcher] growing", "step 1", "64 targets", "512", "step_size()"));
  std::filesystem::remove_all(path("refused"));
  EXPECT_THAT(refused("{name: growing, shortest: 8, longest: 8, claims: 5}"),
              Names("[batcher] growing", "(8, 8)", "1 to 5", "sequence_length()"));
}

// Evaluation and plans ask the batcher for its length; its keys may have any name.
TEST_F(Lengths, EvaluationAndPlansAskTheBatcher) {
  const RunResult trained = run("asked", "{name: growing, shortest: 20, longest: 20}");
  const EvalResult evaluated = evaluate_run(path("asked"), {});
  EXPECT_DOUBLE_EQ(evaluated.ppl, trained.valid_ppl);
  run("other", "{name: growing, shortest: 20, longest: 35, every: 1000}");
  EXPECT_NE(evaluate_run(path("other"), {}).ppl, trained.valid_ppl) << "windows of 20 and of 35 give the same result";
  DatasetChecks checks;
  EXPECT_THAT(dry_run(recipe("plan", "{name: growing, shortest: 20, longest: 20}"), "lengths", checks).text,
              HasSubstr("batch 8 sequences = 160 tokens"));
}

TEST_F(Lengths, AResumeCountsOnFromItsCheckpoint) {
  const std::string batcher = "{name: growing, shortest: 3, longest: 6, every: 2}";
  run("whole", batcher);
  run("parts", batcher, "checkpoint: {every: 2}");
  for (const CheckpointInfo& c : list_checkpoints(path("parts")))
    if (c.step > 4) std::filesystem::remove_all(c.folder);
  run_recipe(recipe("parts", batcher, "checkpoint: {every: 2}"), "lengths", {path("parts"), {}, ""});
  EXPECT_EQ(records("parts", "train").back()["tokens"], 192);
  EXPECT_EQ(checkpoint_numbers(path("parts") + "/checkpoints/step-6").at("counted.tokens"), "192");
  EXPECT_EQ(model("parts"), model("whole"));
}

}  // namespace
}  // namespace lmx::app
