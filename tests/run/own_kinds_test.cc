// A loss, an optimizer and a schedule outside of lmx, whose fields have names that no component of lmx uses, together
// with a batcher and a model outside of lmx: dry run, run, resume, evaluation, sweep, and errors in their functions.
#include "base/text.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

// Runs with plugins of these folders of tests/plugins.
class WithPlugins : public RunTest {
 protected:
  explicit WithPlugins(Words folders) : folders_(std::move(folders)) {}
  Words with_plugins(Words words) const {
    for (const std::string& folder : folders_)
      words = joined(words, {"--plugin-dir", build_path("/tests/plugins/") + folder});
    return words;
  }
  Outcome train(const std::string& dir, const Words& more = {}) const {
    return run_process(with_plugins(command(dir, more)), environment());
  }
  Outcome lmx(const Words& words) const { return run_lmx(with_plugins(words), environment()); }

 private:
  const Words folders_;
};

class OwnKinds : public WithPlugins {
 protected:
  OwnKinds() : WithPlugins({"own_names", "own_kinds", "composed"}) {
    write("tiny.yaml",
          "data: {name: synthetic, vocab_size: 60, train_tokens: 3000, valid_tokens: 300, test_tokens: 0}\n"
          "batcher: {name: spans, span: 9}\nbatch: {global: 8, micro: 3}\n"
          "model: {name: composed_decoder, layers: 1, d: 16, ffn: 24}\n"
          "loss: {name: test_loss, sharpness: 1.5}\noptimizer: {name: test_optimizer, pace: 0.25}\n"
          "schedule: {name: test_schedule, share: 0.5, ramp: 2}\n"
          "train: {steps: 6, eval_every: 2, log_every: 1}\ncheckpoint: {every: 2}\nthreads: 1\n");
  }
};

TEST_F(OwnKinds, ADryRunCountsTheStateOfTheOptimizer) {
  const Outcome o = train("a", {"--dry-run"});
  ASSERT_THAT(o, Succeeds());
  std::string count = o.out.substr(o.out.find("\nparameters ") + 12);
  count.resize(count.find('\n'));
  std::erase(count, ',');
  // Three tensors of f32 for each parameter.
  EXPECT_THAT(o.out, HasSubstr("  optimizer " + lmx::bytes_text(12 * std::stoll(count)) + "\n"));
}

TEST_F(OwnKinds, TrainsResumesAndEvaluatesBitExactly) {
  const Outcome whole = train("whole");
  ASSERT_THAT(whole, Succeeds());
  ASSERT_THAT(train("parts", {"--until", "3"}), Succeeds());
  ASSERT_THAT(train("parts", {"--resume", path("parts")}), Succeeds());
  EXPECT_EQ(model("whole", 6), model("parts", 6));
  const auto rates = [&](const char* dir) {
    std::vector<double> all;
    for (const Json& record : records(dir, "train")) all.push_back(record["lr"]);
    return all;
  };
  ASSERT_EQ(rates("whole").size(), 6u);
  EXPECT_EQ(rates("whole")[0], 0.125);  // half of the ramp
  EXPECT_EQ(rates("whole")[1], 0.25);
  EXPECT_EQ(rates("whole"), rates("parts"));
  const std::vector<Json> valid = records("whole", "valid");
  const Outcome eval = lmx({"eval", path("whole"), "--json"});
  ASSERT_THAT(eval, Succeeds());
  EXPECT_DOUBLE_EQ(Json::parse(eval.out)["nll_nat"].get<double>(), valid.back()["nll_nat"].get<double>());
  const Json plugins = Json::parse(read_file(path("whole/provenance.json")))["starts"][0]["plugins"];
  for (const char* name : {"loss/test_loss", "optimizer/test_optimizer", "schedule/test_schedule"}) {
    EXPECT_EQ(plugins[name]["version"], "1.2.3") << name;
    EXPECT_EQ(plugins[name]["sha256"].get<std::string>().size(), 64u) << name;
  }
}

// The sum over virtual ranks is that of one rank up to rounding, although the ranks divide the batch.
TEST_F(OwnKinds, RanksTrainTheSameModel) {
  ASSERT_THAT(train("one"), Succeeds());
  const Outcome four = train("four", {"--ranks", "4"});
  ASSERT_THAT(four, Succeeds());
  EXPECT_NEAR(records("one", "valid").back()["nll_nat"], records("four", "valid").back()["nll_nat"], 1e-4);
}

// Ranks with separate values that share a core make their steps one after the other; a step lasts as long as all of
// them. The schedule sleeps for 5 ms in the step of each rank.
TEST_F(OwnKinds, AStepOfSeparateRanksIsThatOfAllRanks) {
  const Outcome o = train("slow", {"sync={all: {params: .*, strategy: local_sgd, every: 4}}", "schedule.fault=7",
                                   "comm={name: virtual, ranks: 4, at_once: 1}", "train.eval_every=0"});
  ASSERT_EQ(o.code, 0) << o.err;
  const std::vector<Json> steps = records("slow", "train");
  ASSERT_EQ(steps.size(), 6u);
  for (const Json& record : steps) EXPECT_GE(record["step_s"].get<double>(), 0.02);
}

TEST_F(OwnKinds, AResumedRunMayChangeWhatTheComponentsAllow) {
  ASSERT_THAT(train("a", {"--until", "2"}), Succeeds());
  const auto resume = [&](const std::string& change) {
    return train("a", {"--resume", path("a"), "--until", "4", "--change", change});
  };
  EXPECT_THAT(resume("loss.spread=0.2"), Refuses("--change loss.spread", "loss.sharpness"));
  const Outcome loss = resume("loss.sharpness=2");
  EXPECT_THAT(loss, Succeeds());
  EXPECT_THAT(train("a", {"--resume", path("a"), "--change", "optimizer.pace=0.125", "--change", "loss.sharpness=2",
                          "--change", "schedule.share=1"}),
              Succeeds());
  // With the share 1, no validation has lowered the rate: it is the new pace.
  EXPECT_EQ(records("a", "train").back()["lr"], 0.125);
}

TEST_F(OwnKinds, AreSwept) {
  const Outcome sweep = lmx({"sweep", path("tiny.yaml"), "--out", path("sweep"), "optimizer.pace=0.1,0.2",
                             "loss.sharpness=1,2", "schedule.ramp=2", "train.steps=2"});
  EXPECT_THAT(sweep, Succeeds());
  EXPECT_THAT(read_file(folder_ / "sweep/table.csv"), Names("optimizer.pace", "loss.sharpness", "0.2"));
}

TEST_F(OwnKinds, ErrorsNameThePluginAndTheFunction) {
  const auto error = [&](const std::string& fault) {
    const Outcome o = train("broken", {fault});
    EXPECT_EQ(o.code, 1) << fault << o.err;
    std::filesystem::remove_all(path("broken"));
    return o.err;
  };
  EXPECT_THAT(error("loss.fault=8"),
              Names("forward()", "loss plugin 'test_loss'", "test_loss.so", "a loss without its map"));
  const std::string backward = error("loss.fault=9");
  EXPECT_THAT(backward, Names("backward of forward()", "loss plugin 'test_loss'", "a gradient without its map"));
  EXPECT_THAT(backward, Not(HasSubstr("composed_decoder")));
  EXPECT_THAT(error("optimizer.fault=12"),
              Names("update()", "optimizer plugin 'test_optimizer'", "an optimizer without its map"));
  EXPECT_THAT(error("schedule.fault=5"),
              Names("rate()", "schedule plugin 'test_schedule'", "a schedule without its map"));
  EXPECT_THAT(error("schedule.fault=6"), Names("rate()", "'test_schedule'", "nan for update 2"));
}

TEST_F(OwnKinds, AnOptimizerWithoutALearningRateIsRefused) {
  EXPECT_THAT(train("a", {"--dry-run", "optimizer.fault=2"}),
              Refuses("test_optimizer.so", "states no learning rate", "lmx::trait::kLearningRate"));
}

TEST_F(OwnKinds, AnUnknownNameIsComparedWithPluginsToo) {
  EXPECT_THAT(train("a", {"--dry-run", "loss.name=test_los"}),
              Refuses("full_softmax, sampled_softmax, two_stage_softmax, test_loss", "did you mean 'test_loss'?"));
  EXPECT_THAT(train("a", {"--dry-run", "schedule.shar=1"}), Refuses("schedule.shar", "'share'?"));
}

TEST_F(OwnKinds, TheirFieldsAreInTheSchema) {
  const Outcome schema = lmx({"config", path("tiny.yaml"), "--schema"});
  ASSERT_THAT(schema, Succeeds());
  for (const char* field : {"sharpness", "pace", "share"}) EXPECT_THAT(schema.out, HasSubstr(field));
}

// Plugins whose fields have names that no component of lmx uses. Dry run, run, resume, evaluation and sweep ask a
// component for what they need, so they must work with any names.

class OwnNames : public WithPlugins {
 protected:
  OwnNames() : WithPlugins({"own_names", "own_names_pairs", "composed"}) {
    write("tiny.yaml",
          "data: {name: synthetic, vocab_size: 60, train_tokens: 3000, valid_tokens: 300, test_tokens: 0}\n"
          "batcher: {name: spans, span: 9}\nbatch: {global: 8}\n"
          "model: {name: composed_decoder, layers: 1, d: 16, ffn: 24}\nloss: {name: full_softmax}\n"
          "optimizer: {name: adam, lr: 0.01}\ntrain: {steps: 6, eval_every: 3}\nthreads: 1\n");
  }
};

TEST_F(OwnNames, DryRunKnowsTheBatch) {
  EXPECT_THAT(train("a", {"--dry-run"}), Prints("batch 8 sequences = 72 tokens, vocabulary 60\n"));
  EXPECT_THAT(train("a", {"--dry-run", "batcher.span=11"}).out, HasSubstr("batch 8 sequences = 88 tokens"));
}

TEST_F(OwnNames, DryRunKnowsTheBudgetOfSubBatches) {
  write("pairs.yaml",
        "data: {name: parallel, corpus: multi30k, vocab_size: 4000}\nbatcher: {name: bundles, room: 80}\n"
        "batch: {global: 4}\nmodel: {name: transformer, d: 16, heads: 2, ffn: 32}\n"
        "loss: {name: full_softmax}\noptimizer: {name: adam, lr: 0.001}\ntrain: {steps: 2}\n");
  const Outcome pairs = lmx({"run", path("pairs.yaml"), "--dry-run"});
  EXPECT_THAT(pairs.out, Names("4 sub-batches", "320 target tokens")) << pairs.err;
}

TEST_F(OwnNames, TrainsResumesAndEvaluates) {
  ASSERT_THAT(train("whole"), Succeeds());
  ASSERT_THAT(train("parts", {"--until", "3"}), Succeeds());
  ASSERT_THAT(train("parts", {"--resume", path("parts")}), Succeeds());
  EXPECT_EQ(model("whole", 6), model("parts", 6));
  // Positions see the earlier tokens of their window only, so that windows of another length would give another loss.
  const Outcome own = lmx({"eval", path("whole"), "--json"});
  ASSERT_THAT(own, Succeeds());
  EXPECT_DOUBLE_EQ(Json::parse(own.out)["nll_nat"].get<double>(), series("whole", "valid", "nll_nat").back());
}

TEST_F(OwnNames, IsSwept) {
  const Outcome sweep = lmx({"sweep", path("tiny.yaml"), "--out", path("sweep"), "batcher.span=5,9", "train.steps=2"});
  EXPECT_THAT(sweep, Succeeds());
  EXPECT_THAT(read_file(folder_ / "sweep/table.csv"), Names("batcher.span", "9"));
}

}  // namespace
}  // namespace lmx_test
