// Runs with each optimizer and with rules of optimizers: they resume in the same bits, on any number of ranks, in half
// precision; what they record; what a recipe cannot combine.
#include "process/run_fixture.h"
#include "runfiles/checkpoint.h"

namespace lmx_test {
namespace {

// The keys of a recipe that chooses rules, for the tiny recipe.
Words rules_of(const std::string& hidden, const std::string& rest = "name: adam, lr: 0.01") {
  return {"~optimizer", "+optimizer.other={params: 'embedding|softmax|bias', " + rest + "}",
          "+optimizer.hidden={params: '.*', " + hidden + "}"};
}

struct Choice {
  std::string name;
  Words words;
};
std::ostream& operator<<(std::ostream& out, const Choice& c) {
  return out << c.name;
}
std::vector<Choice> choices() {
  const auto one = [](const std::string& text) { return Words{"~optimizer", "+optimizer={" + text + "}"}; };
  const Words constant{"schedule={name: constant, warmup: 5}", "train.ema=0"};
  return {{"muon", rules_of("name: muon, lr: 0.02, weight_decay: 0.1")},
          {"lion", one("name: lion, lr: 0.003, weight_decay: 0.1")},
          {"lamb", one("name: lamb, lr: 0.01")},
          {"lars", one("name: lars, lr: 2")},
          {"adafactor", one("name: adafactor, lr: 0.05")},
          {"schedule_free", joined(rules_of("name: schedule_free, lr: 0.01"), constant)},
          {"rules", rules_of("name: sgd, lr: 0.1, momentum: 0.9")}};
}

class OptimizerRun : public RunTest {
 protected:
  Outcome train(const std::string& dir, Words words, const Words& more = {}) const {
    const Outcome o = run(
        dir, joined({"train.steps=20", "train.eval_every=10", "train.log_every=5"}, joined(std::move(words), more)));
    EXPECT_THAT(o, Succeeds());
    return o;
  }
  std::string state(const std::string& dir) const {
    return read_file(folder_ / dir / "checkpoints/step-20/train_state.safetensors");
  }
};

class EachOptimizer : public OptimizerRun, public testing::WithParamInterface<Choice> {};
INSTANTIATE_TEST_SUITE_P(Runs, EachOptimizer, testing::ValuesIn(choices()),
                         [](const auto& test) { return test.param.name; });

TEST_P(EachOptimizer, PausedRunsContinueInTheSameBits) {
  const Words& words = GetParam().words;
  train("whole", words);
  train("cut", words, {"--until", "10"});  // between two validations, and at a validation
  train("cut", words, {"--resume", path("cut")});
  EXPECT_EQ(model("cut", 20), model("whole", 20));
  EXPECT_EQ(state("cut"), state("whole"));
  EXPECT_EQ(metrics("cut"), metrics("whole"));
  EXPECT_LT(records("whole", "valid").back()["nll_nat"].get<double>(), std::log(60));
}

TEST_P(EachOptimizer, TrainsInHalfPrecision) {
  const Words& words = GetParam().words;
  train("single", words);
  const double single = records("single", "valid").back()["nll_nat"].get<double>();
  for (const Words& half : {Words{"precision=bf16"}, Words{"precision=fp16"}}) {
    train("half", words, half);
    EXPECT_NEAR(records("half", "valid").back()["nll_nat"].get<double>(), single, 0.15) << half[0];
    fs::remove_all(path("half"));
  }
  // A scale that is too large at first, so that some updates are left out.
  train("scaled", words, {"precision=fp16", "loss_scale.init=1e8"});
  train("paused", words, {"precision=fp16", "loss_scale.init=1e8", "--until", "10"});
  train("paused", words, {"precision=fp16", "loss_scale.init=1e8", "--resume", path("paused")});
  EXPECT_THAT(read_file(folder_ / "scaled/checkpoints/step-20/state.json"), Not(HasSubstr("\"updates\": \"20\"")));
  EXPECT_EQ(model("paused", 20), model("scaled", 20));
  EXPECT_EQ(state("paused"), state("scaled"));
}

TEST_P(EachOptimizer, RanksGiveTheResultOfOne) {
  const Words words = joined(GetParam().words, {"~loss", "+loss={name: full_softmax}", "model.dropout=0"});
  train("one", words);
  train("four", words, {"comm={name: virtual, ranks: 4}"});
  EXPECT_NEAR(records("four", "valid").back()["nll_nat"].get<double>(),
              records("one", "valid").back()["nll_nat"].get<double>(), 2e-3);
  const Outcome probe = run("probe", {"comm={name: gloo, ranks: 1}", "train.steps=1"});
  if (probe.err.find("no Gloo") != std::string::npos) return;
  train("processes", words, {"comm={name: gloo, ranks: 4}"});
  EXPECT_EQ(model("processes", 20), model("four", 20));
  EXPECT_EQ(state("processes"), state("four"));
}

TEST_P(EachOptimizer, TheCountedStateIsThatOfTheRun) {
  const Words& words = GetParam().words;
  train("a", words);
  int64_t bytes = 0;
  for (const auto& [name, t] :
       lmx::load_safetensors(path("a") + "/checkpoints/step-20/train_state.safetensors", lmx::Allocator::cpu()))
    if (name.starts_with("optimizer/")) bytes += t.bytes();
  EXPECT_GT(bytes, 0);
  const Outcome dry = run("b", joined(words, {"--dry-run", "train.ema=0"}));
  EXPECT_THAT(dry, Succeeds());
  EXPECT_NEAR(bytes_of(dry.out, "optimizer"), static_cast<double>(bytes), 0.05 * static_cast<double>(bytes));
}

TEST_F(OptimizerRun, RecordsContainTheRateOfEachRule) {
  train("a", joined(rules_of("name: sgd, lr: 0.1"), {"schedule={name: linear}"}));
  const Json record = records("a", "train").back();
  EXPECT_DOUBLE_EQ(record["lr"].get<double>(), 0.01 / 20);
  EXPECT_DOUBLE_EQ(record["lr/other"].get<double>(), 0.01 / 20);
  EXPECT_NEAR(record["lr/hidden"].get<double>(), 0.1 / 20, 1e-12);
  train("b", {});
  EXPECT_FALSE(records("b", "train").back().contains("lr/other"));
}

TEST_F(OptimizerRun, AResumedRunMayChangeARateButNotARule) {
  const Words words = rules_of("name: sgd, lr: 0.1");
  train("a", words, {"--until", "10"});
  const auto refused = [&](const std::string& change, const std::string& fact) {
    EXPECT_THAT(run("a", joined(words, {"train.steps=20", "train.eval_every=10", "train.log_every=5", "--resume",
                                        path("a"), "--change", change})),
                Refuses("--change " + fact, "state"));
  };
  refused("optimizer.hidden.name=adam", "optimizer.hidden.name");
  refused("optimizer.hidden.params=x", "optimizer.hidden.params");
  refused("optimizer.hidden={params: '.*', name: adam}", "optimizer.hidden");
  train("a", words, {"--resume", path("a"), "--change", "optimizer.hidden.lr=0.2"});
  EXPECT_DOUBLE_EQ(records("a", "train").back()["lr/hidden"].get<double>(), 0.2);
  EXPECT_THAT(read_file(folder_ / "a/metrics.jsonl"), Names("\"optimizer.hidden.lr\""));
}

TEST_F(OptimizerRun, ASweepChangesARuleAndTheSchemaKnowsItsKeys) {
  Words words{"sweep", path("tiny.yaml"), "--dry-run"};
  EXPECT_THAT(run_lmx(joined(words, joined(rules_of("name: muon"), {"optimizer.hidden.lr=0.01,0.02"})), environment()),
              Prints("optimizer.hidden.lr", "0-lr=0.01", "1-lr=0.02"));
  EXPECT_THAT(run_lmx(joined({"config", path("tiny.yaml"), "--schema"}, rules_of("name: muon")), environment()),
              Prints("optimizer.other: adam", "optimizer.hidden: muon", "coefficients"));
  EXPECT_THAT(
      run_lmx(joined({"config", path("tiny.yaml"), "--explain", "optimizer"}, rules_of("name: muon")), environment()),
      Prints("optimizer.hidden.momentum", "default of optimizer muon"));
}

TEST_F(OptimizerRun, ServersUpdateByRulesOfElements) {
  const Words server{"sync={all: {params: .*, strategy: param_server}}", "comm={name: virtual, ranks: 2}",
                     "train.ema=0"};
  train("whole", joined(rules_of("name: lion, lr: 0.001"), server));
  train("cut", joined(rules_of("name: lion, lr: 0.001"), server), {"--until", "10"});
  train("cut", joined(rules_of("name: lion, lr: 0.001"), server), {"--resume", path("cut")});
  EXPECT_EQ(model("cut", 20), model("whole", 20));
  EXPECT_THAT(run("b", joined(rules_of("name: muon"), server)),
              Refuses("optimizer.hidden.name", "muon", "asynchronous rule of sync"));
}

TEST_F(OptimizerRun, FrozenParametersAreNotUpdatedByARule) {
  const Words words = joined(rules_of("name: muon"), {"init.freeze=weight_hh"});
  train("a", words);
  const auto all =
      lmx::load_safetensors(path("a") + "/checkpoints/step-20/train_state.safetensors", lmx::Allocator::cpu());
  EXPECT_TRUE(all.contains("optimizer/lstm.0.weight_ih.momentum"));
  EXPECT_FALSE(all.contains("optimizer/lstm.0.weight_hh.momentum"));
}

// Commands that read a checkpoint use the averages, as the validation of the run does.
TEST_F(OptimizerRun, ScheduleFreeAveragesAreUsedEverywhere) {
  const Words words =
      joined(rules_of("name: schedule_free, lr: 0.05"), {"schedule={name: constant, warmup: 5}", "train.ema=0"});
  train("a", words);
  const double valid = records("a", "valid").back()["ppl"].get<double>();
  const Outcome eval = run_lmx({"eval", path("a"), "--split", "valid", "--json"}, environment());
  ASSERT_THAT(eval, Succeeds());
  EXPECT_NEAR(Json::parse(eval.out)["ppl"].get<double>(), valid, 1e-6 * valid);
  // A run that starts from these weights has them, too; the values of training differ.
  const auto averages =
      lmx::load_safetensors(path("a") + "/checkpoints/step-20/train_state.safetensors", lmx::Allocator::cpu());
  EXPECT_TRUE(averages.contains("ema/lstm.0.weight_ih"));
  EXPECT_FALSE(averages.contains("ema/embedding.weight"));  // its rule does not average
  for (const auto& [words_of, fact] : std::vector<std::pair<Words, std::string>>{
           {{"schedule={name: cosine}", "train.ema=0"}, "schedule.name is cosine"},
           {{"train.ema=0.9", "schedule={name: constant}"}, "train.ema"}}) {
    EXPECT_THAT(run("b", joined(rules_of("name: schedule_free"), words_of)), Refuses("optimizer.hidden.name", fact));
  }
}

// One run without a decay, and branches of it that end like runs with this decay from their beginning.
TEST_F(OptimizerRun, BranchesOfAStablePart) {
  const Words trunk{"schedule={name: wsd, warmup: 4, decay: 0}", "train.ema=0"},
      decay{"schedule={name: wsd, warmup: 4, decay: 6}", "train.ema=0"};
  train("trunk", trunk, {"train.steps=40", "--until", "10"});
  fs::copy(path("trunk"), path("branch"), fs::copy_options::recursive);
  train("branch", trunk, {"train.steps=16", "--resume", path("branch"), "--change", "schedule.decay=6"});
  train("direct", decay, {"train.steps=16"});
  EXPECT_EQ(model("branch", 16), model("direct", 16));
  EXPECT_LT(records("branch", "train").back()["lr"].get<double>(), 0.01 / 4);
  train("trunk", trunk, {"train.steps=40", "--resume", path("trunk")});
  EXPECT_EQ(records("trunk", "train").back()["lr"].get<double>(), 0.01);
}

}  // namespace
}  // namespace lmx_test
