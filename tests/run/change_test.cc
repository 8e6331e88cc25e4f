// Early stopping by patience, and values that are changed on purpose when a run is resumed.
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

class Change : public RunTest {
 protected:
  Json starts(const std::string& dir) const {
    return Json::parse(read_file(folder_ / dir / "provenance.json"))["starts"];
  }
};

// A learning rate near 0: no validation is better than the first one, so the third one ends the run.
TEST_F(Change, PatienceEndsARun) {
  const Words still{"optimizer.lr=1e-30", "train.ema=0", "stop.patience=2", "train.eval_every=10"};
  ASSERT_THAT(run("whole", still),
              Prints(Names("2 validations", "valid.ppl", "step 10"), Not(HasSubstr("time_to_target_s"))));
  ASSERT_EQ(records("whole", "valid").size(), 3u);
  EXPECT_THAT(read_file(folder_ / "whole/status.json"), Names("\"done\"", "2 validations"));
  EXPECT_FALSE(model("whole", 30).empty());
  // If the run pauses between two validations, it still counts them from the best one.
  Words cut = still;
  cut.insert(cut.end(), {"--until", "25"});
  ASSERT_THAT(run("cut", cut), Succeeds());
  Words resume = still;
  resume.insert(resume.end(), {"--resume", path("cut")});
  ASSERT_THAT(run("cut", resume), Succeeds());
  EXPECT_EQ(model("cut", 30), model("whole", 30));
  EXPECT_EQ(metrics("cut"), metrics("whole"));
  // A run that has ended stays ended after a resume; with more patience it continues.
  resume.back() = path("whole");
  EXPECT_THAT(run("whole", resume).out, Names("2 validations"));
  resume[2] = "stop.patience=3";
  ASSERT_THAT(run("whole", resume), Succeeds());
  EXPECT_EQ(records("whole", "valid").size(), 4u);
}

TEST_F(Change, ALearningRateOnPurpose) {
  ASSERT_THAT(run("a", {"--until", "50"}), Succeeds());
  ASSERT_THAT(run("a", {"--resume", path("a"), "--change", "optimizer.lr=0.001"}), Succeeds());
  EXPECT_THAT(read_file(folder_ / "a/config.yaml"), HasSubstr("lr: 0.001"));
  EXPECT_THAT(read_file(folder_ / "a/log.txt"), Names("optimizer.lr was 0.01", "0.001 from step 50"));
  const auto changes = records("a", "change");
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0],
            (Json{{"step", 50}, {"split", "change"}, {"key", "optimizer.lr"}, {"before", "0.01"}, {"now", "0.001"}}));
  EXPECT_EQ(starts("a")[1]["changes"],
            (Json{{{"key", "optimizer.lr"}, {"before", "0.01"}, {"now", "0.001"}, {"step", 50}}}));
  EXPECT_FALSE(starts("a")[0].contains("changes"));
  EXPECT_LT(records("a", "train").back()["lr"].get<double>(), 0.0011);
  // The old recipe now differs from the changed run, and the message names --change.
  EXPECT_THAT(run("a", {"--resume", path("a"), "train.steps=130"}),
              Refuses("optimizer.lr: 0.001 there", "0.01 here", "--change"));
  // Repeating the same change has no effect.
  ASSERT_THAT(run("a", {"--resume", path("a"), "--change", "optimizer.lr=0.001", "train.steps=130"}), Succeeds());
  EXPECT_EQ(records("a", "change").size(), 1u);
  EXPECT_THAT(run_lmx({"report", path("a")}, environment()), Succeeds());
}

// With twice the batch, the states belong to other sequences and are not used. Tokens are counted as they were read.
TEST_F(Change, ABatchOnPurpose) {
  ASSERT_THAT(run("a", {"--until", "50"}), Succeeds());
  ASSERT_THAT(run("a", {"--resume", path("a"), "--change", "batch.global=16", "--change", "batch.micro=8"}),
              Succeeds());
  EXPECT_EQ(records("a", "change").size(), 2u);
  EXPECT_EQ(records("a", "train").back()["tokens"], 50 * 8 * 6 + 70 * 16 * 6);
  // Resumed once more, the run continues the same count.
  ASSERT_THAT(run("a", {"--resume", path("a"), "batch.global=16", "batch.micro=8", "train.steps=127"}), Succeeds());
  EXPECT_EQ(records("a", "train").back()["tokens"], 50 * 8 * 6 + 77 * 16 * 6);
}

// The model's plugin states by a trait that its dropout may change.
TEST_F(Change, AKeyThatTheModelLetsChange) {
  ASSERT_THAT(run("a", {"--until", "50"}), Succeeds());
  ASSERT_THAT(run("a", {"--resume", path("a"), "--change", "model.dropout=0.3"}), Succeeds());
  ASSERT_EQ(records("a", "change").size(), 1u);
  EXPECT_EQ(records("a", "change")[0]["key"], "model.dropout");
}

TEST_F(Change, Mistakes) {
  ASSERT_THAT(run("a", {"train.steps=20", "train.eval_every=10"}), Succeeds());
  const std::string config = read_file(folder_ / "a/config.yaml");
  const auto refused = [&](const Words& more, const Words& parts) {
    const Outcome o = run("a", joined(more, {"train.steps=20", "train.eval_every=10"}));
    EXPECT_EQ(o.code, 2) << o.out;
    for (const std::string& part : parts) EXPECT_THAT(o.err, Names(part));
    EXPECT_EQ(read_file(folder_ / "a/config.yaml"), config);
  };
  const Words resume{"--resume", path("a"), "--change"};
  const auto with = [&](const std::string& change) {
    Words words = resume;
    words.push_back(change);
    return words;
  };
  refused(with("model.cells=24"), {"--change model.cells", "shapes", "init: {from: RUN}", "optimizer.*"});
  refused(with("seed=2"), {"--change seed", "random number"});
  refused(with("optimizer.name=sgd"), {"--change optimizer.name", "state"});
  refused(with("data.vocab_size=50"), {"--change data.vocab_size"});
  refused(with("run.dir=" + path("b")), {"--change run.dir", "own folder"});
  refused(with("optimizer.lrr=1"), {"optimizer.lrr", "'lr'"});
  refused(with("optimizer.lr"), {"KEY=VALUE"});
  refused(with("optimizer.lr=0.5"), {"20 steps in all", "train.steps"});
  EXPECT_THAT(run("a", {"--resume", path("a"), "train.steps=19", "train.eval_every=10"}),
              Refuses("[resume] the run has 19 steps in all, and it has made 20"));
  refused({"--change", "optimizer.lr=0.5"}, {"--resume DIR"});
}

// Records of a resumed run: windows are complete, and missing lines are reported.

class RecordsResume : public RunTest {
 protected:
  void edit_metrics(const std::string& dir, const std::function<std::string(std::string)>& change) const {
    write(dir + "/metrics.jsonl", change(read_file(folder_ / dir / "metrics.jsonl")));
  }
};

// The last record of a paused run also counts the steps before the pause.
TEST_F(RecordsResume, AWindowCountsAllOfItsSteps) {
  const Words words{"--ranks",
                    "3",
                    "sync.rest.params=.*",
                    "sync.rest.strategy=one_bit",
                    "train.steps=40",
                    "train.log_every=20",
                    "train.eval_every=40",
                    "checkpoint.every=10",
                    "batch.micro=0"};
  const auto with = [&](const Words& more) { return joined(words, more); };
  ASSERT_THAT(run("whole", words), Succeeds());
  ASSERT_THAT(run("cut", with({"--until", "19"})), Succeeds());
  ASSERT_THAT(run("cut", with({"--until", "27", "--resume", path("cut")})), Succeeds());
  ASSERT_THAT(run("cut", with({"--resume", path("cut")})), Succeeds());
  const auto whole = records("whole", "train"), cut = records("cut", "train");
  ASSERT_EQ(whole.size(), 2u);
  ASSERT_EQ(cut.size(), 2u);
  int errors = 0;
  for (size_t i = 0; i < whole.size(); ++i)
    for (const auto& [key, value] : whole[i].items()) {
      if (!key.starts_with("codec/")) continue;
      ++errors;
      EXPECT_NEAR(cut[i].at(key).get<double>(), value.get<double>(), 1e-9 * std::abs(value.get<double>())) << key;
    }
  EXPECT_GT(errors, 10);
  // Validations at the pauses and the texts of records are also counted: some hundred bytes of many thousands.
  for (size_t i = 0; i < whole.size(); ++i)
    for (const char* key : {"comm_sent_bytes", "comm_received_bytes"}) {
      const double expected = whole[i].at(key);
      EXPECT_NEAR(cut[i].at(key).get<double>(), expected, 0.1 * expected) << key << " at " << whole[i]["step"];
    }
  const auto ranks = records("cut", "rank"), others = records("whole", "rank");
  ASSERT_EQ(ranks.size(), 6u);
  for (size_t i = 0; i < ranks.size(); ++i) {
    EXPECT_EQ(ranks[i]["steps"], 20);
    EXPECT_EQ(ranks[i]["comm/rest/all_to_all/sent_bytes"], others[i]["comm/rest/all_to_all/sent_bytes"]);
  }
}

// The interval of checkpoints does not change the recorded traffic of steps.
TEST_F(RecordsResume, CheckpointsAreNotCountedAsTraffic) {
  const Words words{"--ranks", "2", "train.steps=14", "train.log_every=7", "train.eval_every=14", "batch.micro=0"};
  const auto run_with = [&](const std::string& dir, const std::string& every) {
    Words all = words;
    all.push_back("checkpoint.every=" + every);
    ASSERT_THAT(run(dir, all), Succeeds());
  };
  run_with("often", "1");
  run_with("once", "14");
  EXPECT_EQ(records("often", "train")[0]["comm_sent_bytes"], records("once", "train")[0]["comm_sent_bytes"]);
  EXPECT_GT(records("once", "train")[0]["comm_sent_bytes"], 0);
}

TEST_F(RecordsResume, DamageIsToldOf) {
  ASSERT_THAT(run("r", {"train.steps=60"}), Succeeds());
  fs::copy(path("r"), path("hole"), fs::copy_options::recursive);
  const Words on{"train.steps=70", "--resume"};
  // One bit of the second line is changed.
  edit_metrics("r", [](std::string text) {
    text[text.find('\n') + 1] ^= 1;
    return text;
  });
  Outcome o = run("r", {"train.steps=70", "--resume", path("r")});
  EXPECT_THAT(o, Warns("warning: ", path("r") + "/metrics.jsonl:2: "));
  // Complete lines are missing, as after a power loss.
  edit_metrics("hole", [](const std::string& text) { return text.substr(0, text.find("{\"step\":28")); });
  o = run("hole", {"train.steps=70", "--resume", path("hole")});
  EXPECT_THAT(o, Warns("warning:", path("hole") + "/metrics.jsonl", "6 of 9"));
  // The warning is not repeated: the next resume accepts the file.
  o = run("hole", {"train.steps=80", "--resume", path("hole")});
  EXPECT_THAT(o, Succeeds());
  EXPECT_EQ(o.err.find("warning: "), std::string::npos) << o.err;
}

// Runs that start from the weights of other runs, and frozen parameters.

class Init : public RunTest {
 protected:
  // The bytes of one tensor of a checkpoint; "" if the checkpoint does not contain it.
  std::string tensor(const std::string& dir, int64_t step, const std::string& name) const {
    const std::string file = model(dir, step);
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    const Json header = Json::parse(file.substr(8, length));
    if (!header.contains(name)) return "";
    const auto offsets = header[name]["data_offsets"];
    return file.substr(8 + length + offsets[0].get<size_t>(), offsets[1].get<size_t>() - offsets[0].get<size_t>());
  }
  Json start(const std::string& dir) const {
    return Json::parse(read_file(folder_ / dir / "provenance.json"))["starts"].back();
  }
  // Two runs of 10 steps of a tiny recipe, the second with other settings.
  void train_source() { ASSERT_THAT(run("source", {"train.steps=10", "train.ema=0"}), Succeeds()); }
};

TEST_F(Init, StartsWithTheValuesOfAnotherRun) {
  train_source();
  ASSERT_THAT(run("next", {"train.steps=1", "train.ema=0", "optimizer.lr=1e-30", "init.from=" + path("source")}),
              Succeeds());
  for (const char* name : {"embedding.weight", "lstm.0.weight_hh", "softmax.weight"})
    EXPECT_EQ(tensor("next", 1, name), tensor("source", 10, name)) << name;
  EXPECT_THAT(read_file(folder_ / "next/log.txt"), Names("7 of 7 parameters", path("source")));
  const Json init = start("next")["init"];
  EXPECT_EQ(init["taken"].size(), 7u);
  EXPECT_THAT(init["from"].get<std::string>(), HasSubstr("step-10"));
  EXPECT_EQ(init["sha256"].get<std::string>().size(), 64u);
}

// Some parameters have another shape, and init.params leaves out others.
TEST_F(Init, ReportsWhatDoesNotFit) {
  train_source();
  const Words other{"train.steps=1", "train.ema=0", "model.cells=20",
                    "init.from=" + path("source") + "/checkpoints/step-10/model.safetensors"};
  Words words = other;
  words.push_back("init.params=embedding|lstm");
  ASSERT_THAT(run("other", words), Succeeds());
  const std::string log = read_file(folder_ / "other/log.txt");
  EXPECT_THAT(log,
              Names("1 of 7 parameters", "lstm.0.weight_ih", "(64, 12)", "(80, 12)", "softmax.weight", "init.params"));
  // A dry run reports the same and does not train.
  words = command("dry", other);
  words.push_back("--dry-run");
  EXPECT_THAT(run_process(words, environment()), Prints("3 of 7 parameters", "(64, 12)", "(80, 12)"));
}

TEST_F(Init, FrozenParametersKeepTheirBytes) {
  for (const std::string ranks : {"1", "2"}) {
    const std::string dir = "frozen" + ranks;
    ASSERT_THAT(run(dir, {"train.steps=20", "checkpoint.every=1", "checkpoint.keep_last=30",
                          "init.freeze=^embedding|weight_hh", "--ranks", ranks}),
                Succeeds());
    for (const char* name : {"embedding.weight", "lstm.0.weight_hh"})
      EXPECT_EQ(tensor(dir, 1, name), tensor(dir, 20, name)) << name;
    for (const char* name : {"lstm.0.weight_ih", "softmax.weight"})
      EXPECT_NE(tensor(dir, 1, name), tensor(dir, 20, name)) << name;
    const std::string state = read_file(folder_ / dir / "checkpoints/step-20/train_state.safetensors");
    EXPECT_THAT(state, AllOf(HasSubstr("optimizer/lstm.0.weight_ih"), Not(HasSubstr("optimizer/embedding.weight")),
                             Not(HasSubstr("ema/embedding.weight"))));
    EXPECT_EQ(start(dir)["init"]["frozen"], (Json{"embedding.weight", "lstm.0.weight_hh"}));
  }
  // With two ranks a frozen table is not exchanged.
  EXPECT_THAT(read_file(folder_ / "frozen2/metrics.jsonl"), Not(HasSubstr("rows/embedding.weight")));
  EXPECT_THAT(run_lmx({"eval", path("frozen2")}, environment()), Succeeds());
}

// A resumed run continues from its checkpoint, not from init.from, which may no longer exist.
TEST_F(Init, ResumeDoesNotStartAgain) {
  train_source();
  const Words words{"init.from=" + path("source"), "init.freeze=embedding"};
  ASSERT_THAT(run("whole", words), Succeeds());
  ASSERT_THAT(run("cut", joined(words, {"--until", "35"})), Succeeds());
  fs::rename(path("source"), path("moved"));
  ASSERT_THAT(run("cut", joined(words, {"--resume", path("cut")})), Succeeds());
  EXPECT_EQ(model("cut"), model("whole"));
  EXPECT_EQ(metrics("cut"), metrics("whole"));
  // Evaluation and generation need only the run's files.
  EXPECT_THAT(run_lmx({"eval", path("cut")}, environment()), Succeeds());
}

TEST_F(Init, Mistakes) {
  train_source();
  const auto refused = [&](const Words& more, const Words& parts) {
    const Outcome o = run("wrong", more);
    EXPECT_EQ(o.code, 2) << o.out;
    for (const std::string& part : parts) EXPECT_THAT(o.err, Names(part));
    EXPECT_FALSE(fs::exists(path("wrong")));
  };
  refused({"init.from=" + path("sourse")}, {"init.from=", "sourse", "'" + path("source") + "'"});
  refused({"init.from=" + path("source"), "init.checkpoint=11"}, {"init.from=", "'11'"});
  refused({"init.from=" + path("source"), "init.params=encoder"}, {"init.params=encoder", "embedding.weight"});
  refused({"init.params=lstm"}, {"init.params=lstm", "init.from"});
  refused({"init.freeze=embeding.weight"}, {"init.freeze=", "embedding.weight, lstm.0"});
  refused({"init.freeze=.*"}, {"init.freeze=", "all 7 parameters"});
  refused({"init.freeze='('"}, {"init.freeze=", "regular expression"});
  refused({"init.from=" + path("source"), "init.params=^lstm", "model.cells=24", "model.projection=9"},
          {"init.from=", "lstm.0.weight_ih", "(64, 12) there", "(96, 12) here"});
}

// Words that occur in both vocabularies keep their rows, even if their ids differ.
TEST_F(Init, TablesOfAnotherVocabularyAreTakenByWord) {
  const auto recipe = [&](const std::string& text) {
    std::string lines;
    for (int i = 0; i < 400; ++i) lines += text + "\n";
    write("text.txt", lines);
    write("tiny.yaml", "data: {name: text, files: ['" + path("text.txt") + "'], vocab_size: 6, valid_fraction: 0.1}\n" +
                           "batcher: {name: tbptt, sequence_length: 4}\nbatch: {global: 4}\n" +
                           "model: {name: lstm, embedding: 3, cells: 3}\nloss: {name: full_softmax}\n" +
                           "optimizer: {name: sgd, lr: 0.1}\ntrain: {steps: 2}\nthreads: 1\n");
  };
  recipe("a a a b b c d");
  ASSERT_THAT(run("first"), Succeeds());
  recipe("e e e e c c c a a d");  // <unk>, </s>, e, c, a, d
  ASSERT_THAT(run("second", {"init.from=" + path("first"), "optimizer.lr=1e-30"}), Succeeds());
  EXPECT_THAT(read_file(folder_ / "second/log.txt"), HasSubstr("embedding.weight: 5 of 6 rows"));
  const std::string before = tensor("first", 2, "embedding.weight"), after = tensor("second", 2, "embedding.weight");
  const auto row = [](const std::string& table, size_t i) { return table.substr(12 * i, 12); };
  EXPECT_EQ(row(after, 1), row(before, 1));  // </s>
  EXPECT_EQ(row(after, 3), row(before, 4));  // c
  EXPECT_EQ(row(after, 4), row(before, 2));  // a
  EXPECT_EQ(row(after, 5), row(before, 5));  // d
  EXPECT_NE(row(after, 2), row(before, 2));
}

// A checkpoint of a diverged run cannot be used, and every command reports this.
TEST_F(Init, ParametersThatAreNoNumbersAreRefused) {
  train_source();
  const std::string folder = path("source") + "/checkpoints/step-10";
  std::string file = model("source", 10);
  for (size_t i = file.size() - 4; i < file.size(); ++i) file[i] = '\xff';
  write("nan.safetensors", file);
  for (const Words& words : {Words{"eval", path("source")},
                             {"generate", path("source")},
                             {"score", path("source"), path("tiny.yaml")},
                             {"export", path("source"), "--to", "pytorch", "--output", path("out")}}) {
    const Outcome o = run_lmx(joined(words, {"--checkpoint", path("nan.safetensors")}), environment());
    EXPECT_EQ(o.code, 1) << words[0] << o.out;
    EXPECT_THAT(o.err, Names("nan.safetensors", "softmax.weight", "NaN")) << words[0];
    EXPECT_THAT(o.out, Not(HasSubstr("nan"))) << words[0];
  }
  EXPECT_FALSE(fs::exists(path("out")));
  EXPECT_EQ(run("next", {"init.from=" + path("nan.safetensors")}).code, 1);
  EXPECT_FALSE(fs::exists(path("next")));
}

}  // namespace

}  // namespace lmx_test
