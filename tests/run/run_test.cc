// lmx run: its output and files, and the message for each wrong input.
#include <sys/mount.h>

#include "backend/cuda.h"
#include "lmx/matmul.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

using testing::EndsWith;
using testing::MatchesRegex;

using RunCommand = RunTest;

// The loss of a validation in metrics.jsonl.
constexpr const char* kRecordedLoss = "\"valid\",\"nll_nat\":([0-9.e+]+)";

class BadInput : public RunTest {
 protected:
  // Expects exit code 2, one message, and no run folder.
  void refused(const Words& overrides, const Words& parts) const {
    const Outcome o = run("bad", overrides);
    EXPECT_THAT(o, Refuses(NamesMatcher(parts)));
    EXPECT_EQ(o.out, "");
    EXPECT_FALSE(fs::exists(path("bad"))) << "an incomplete run folder is left";
  }
  // The same for a text file.
  void refused_text(const std::string& file, const std::string& vocab_size, const Words& parts) const {
    const std::string recipe = kTinyRecipe, after = recipe.substr(recipe.find("batcher:"));
    write("tiny.yaml", "data: {name: text, files: [" + path(file) +
                           "], valid_fraction: 0.1, vocab_size: " + vocab_size + "}\n" + after);
    refused({}, parts);
  }
};

// "best" is suggested only if that checkpoint was kept.
TEST_F(RunCommand, WhatItProposesNextWorks) {
  const auto with_lmx = environment_with_lmx();
  for (const bool kept : {true, false}) {
    const std::string dir = kept ? "kept" : "not";
    const Outcome o = run_process(command(dir, {"checkpoint.keep_best=" + std::string(kept ? "true" : "false"),
                                                "optimizer.lr=0.05", "schedule={name: constant}", "train.ema=0",
                                                "model.dropout=0", "train.steps=600", "train.eval_every=60"}),
                                  with_lmx);
    ASSERT_THAT(o, Succeeds());
    EXPECT_THAT(o.out,
                Names("next:\n  lmx eval " + path(dir) + (kept ? " --checkpoint best\n" : "\n"), "\nbest valid ppl "));
    const Words hints = proposed(o.out);
    EXPECT_EQ(hints.size(), 2U);
    for (const std::string& line : hints)
      EXPECT_THAT(run_process({"/bin/sh", "-c", line}, with_lmx), Succeeds()) << line;
  }
}

TEST_F(RunCommand, ARecipesOwnLinesArePrintedWithTheirWords) {
  const std::string own = std::string(kTinyRecipe) +
                          "\nprovenance: {next: [lmx config RECIPE --files, echo FOLDER/tiny.yaml RUN RUNS, "
                          "lmx config FOLDER/absent.yaml]}\n";
  write("with lines.yaml", own);
  write("lines.yaml", own);
  write("derived.yaml", "defaults: [lines]\n");
  const auto run_two_steps = [&](const std::string& recipe, const Words& overrides = {}) {
    return run_lmx(joined({"run", path(recipe), "train.steps=2",
                           "run.dir=" + path("runs " + recipe + (overrides.empty() ? "" : " given"))},
                          overrides),
                   environment());
  };
  Outcome o = run_two_steps("with lines.yaml");
  ASSERT_THAT(o, Prints("\n  lmx config '" + path("with lines.yaml") + "' --files\n  echo " + path("tiny.yaml") + " '" +
                        path("runs with lines.yaml") + "' RUNS\n"));
  EXPECT_EQ(o.out.find("absent.yaml"), std::string::npos);
  o = run_two_steps("derived.yaml");
  ASSERT_THAT(o, Succeeds());
  EXPECT_EQ(o.out.find("RUNS"), std::string::npos) << "the lines belong to the other recipe";
  o = run_two_steps("derived.yaml", {"provenance.next=[echo given]"});
  EXPECT_THAT(o.out, HasSubstr("\n  echo given\n"));
  o = run_two_steps("derived.yaml", {"provenance.next=echo"});
  EXPECT_THAT(o, Refuses("provenance.next=echo", "a list of lines", "'echo'"));
}

// A run on characters proposes its report, unless the recipe does so itself.
TEST_F(RunCommand, TheReportIsProposedOnce) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "line " + std::to_string(i * i) + "\n";
  write("text.txt", text);
  const std::string data = "data: {name: text, tokens: chars, files: [" + path("text.txt") + "], vocab_size: 12, ",
                    chars = replaced(replaced(kTinyRecipe, "data: .*", data + "valid_fraction: 0.2}"), "loss: .*",
                                     "loss: {name: full_softmax}");
  for (const std::string& own : {std::string(), std::string("provenance: {next: [lmx report RUN]}\n")}) {
    write("tiny.yaml", chars + own);
    const Outcome o = run("a" + std::to_string(own.size()), {"train.steps=2"});
    ASSERT_THAT(o, Succeeds());
    EXPECT_EQ(count_of(o.out, "  lmx report "), 1U) << o.out;
  }
}

// The shipped recipes' own lines are commands that work.
TEST_F(RunCommand, ShippedRecipesProposeCommandsThatWork) {
  const auto with_lmx = environment_with_lmx();
  const std::string quickstart = source_path("/recipes/quickstart.yaml");
  const Outcome o =
      run_lmx({"run", quickstart, "run.dir=" + path("q"), "train.steps=2", "model.cells=4"}, environment());
  ASSERT_THAT(o, Succeeds());
  const Words hints = proposed(o.out);
  ASSERT_EQ(hints.size(), 3U);
  EXPECT_THAT(hints.back(), EndsWith("recipes/word_lm_gutenberg.yaml --dry-run"));
  // The books may be missing, which ends the dry run with 2 and without an error of the recipe.
  const Outcome next = run_process({"/bin/sh", "-c", hints.back()}, with_lmx);
  EXPECT_THAT(next.out, HasSubstr("word_lm_gutenberg")) << next.err;
}

TEST_F(RunCommand, WritesItsFilesAndPrintsItsResultLast) {
  const Outcome o = run("a");
  ASSERT_THAT(o, Succeeds());
  const std::string last = o.out.substr(o.out.rfind('\n', o.out.size() - 2) + 1);
  EXPECT_THAT(last, MatchesRegex("valid ppl [0-9.]+ \\(best possible: [0-9.]+\\)\n"));
  EXPECT_THAT(o.out, Names("run " + path("a"), "next:\n  lmx eval"));
  EXPECT_THAT(o.err, Names("parameters", "batch 8 sequences = 48 words", "peak memory"));
  EXPECT_EQ(o.err.find('\r'), std::string::npos) << "there must be no progress line without a terminal";
  for (const char* name :
       {"config.yaml", "provenance.json", "metrics.jsonl", "log.txt", "status.json", "vocabulary.tsv",
        "checkpoints/step-120/state.json", "checkpoints/step-120/train_state.safetensors"})
    EXPECT_TRUE(fs::exists(folder_ / "a" / name)) << name;
  EXPECT_THAT(read_file(folder_ / "a" / "status.json"), HasSubstr("\"done\""));
}

TEST_F(RunCommand, MetricsAndProvenanceAreJson) {
  ASSERT_THAT(run("a"), Succeeds());
  int train = 0, valid = 0, rank = 0;
  for (const auto& record : records("a")) {
    if (record["split"] == "rank") {
      ++rank;
      EXPECT_GT(record["memory/parameters_peak_bytes"].get<int64_t>(), 0);
      continue;
    }
    (record["split"] == "train" ? train : valid) += 1;
    EXPECT_GT(record["nll_nat"].get<double>(), 0);
    EXPECT_NEAR(record["ppl"].get<double>(), std::exp(record["nll_nat"].get<double>()),
                1e-6 * record["ppl"].get<double>());
  }
  EXPECT_EQ(train, 120 / 7 + 1);
  EXPECT_EQ(valid, 4);
  EXPECT_EQ(rank, train);
  const auto provenance = nlohmann::json::parse(read_file(folder_ / "a" / "provenance.json"));
  EXPECT_EQ(provenance["starts"].size(), 1u);
  EXPECT_EQ(provenance["starts"][0]["plugins"]["model/lstm"]["sha256"].get<std::string>().size(), 64u);
}

TEST_F(RunCommand, EqualRunsAreEqualBytes) {
  ASSERT_THAT(run("a"), Succeeds());
  ASSERT_THAT(run("b"), Succeeds());
  ASSERT_THAT(run("c", {"seed=2"}), Succeeds());
  EXPECT_EQ(model("a"), model("b"));
  EXPECT_NE(model("a"), model("c"));
}

TEST_F(RunCommand, ItsConfigIsARecipe) {
  ASSERT_THAT(run("a", {"train.steps=20"}), Succeeds());
  ASSERT_THAT(run_lmx({"run", path("a/config.yaml"), "run.dir=" + path("b")}, environment()), Succeeds());
  EXPECT_EQ(model("a", 20), model("b", 20));
}

TEST_F(RunCommand, KeepsTheLastAndTheBest) {
  ASSERT_EQ(run("a", {"optimizer.lr=0.5", "clip=[]"}).code,
            0);  // the first validation is the best one
  Words names;
  for (const auto& entry : fs::directory_iterator(folder_ / "a" / "checkpoints"))
    names.push_back(entry.path().filename());
  EXPECT_GE(names.size(), 2u);
  EXPECT_LE(names.size(), 3u);
  EXPECT_THAT(names, testing::Contains("step-120"));
  EXPECT_THAT(names, testing::Contains("step-110"));
}

TEST_F(RunCommand, DivergencePolicies) {
  const Words wild{"optimizer={name: sgd, lr: 1e30}", "clip=[]", "train.ema=0"};
  const auto with = [&](const std::string& more) {
    Words all = wild;
    all.push_back(more);
    return all;
  };
  EXPECT_THAT(run("stop", wild), Fails("[train] step ", "on_divergence: stop"));
  EXPECT_THAT(read_file(folder_ / "stop" / "status.json"),
              Names("\"failed\"", "\"cause\": \"diverged\"", "on_divergence"));
  EXPECT_THAT(run("limit", {"train.max_loss=0.01"}), Fails("train.max_loss, 0.01"));
  EXPECT_THAT(run("skip", with("train.on_divergence=skip")), Fails("20 updates"));
  EXPECT_THAT(run("lower", {"train.max_loss=0.5", "train.on_divergence=lower_lr", "train.steps=15"}),
              Warns("update", "left out", "0.005"));
}

// A finite but much too large loss. The default limit depends on the vocabulary, here 60 words.
TEST_F(RunCommand, AnAbsurdLossIsADivergence) {
  const Words wild{"optimizer={name: sgd, lr: 1e6}", "clip=[]", "train.ema=0", "train.steps=3", "train.eval_every=3"};
  EXPECT_THAT(run("stop", wild), Fails("[train] step ", "train.max_loss", "54.0943"));
  EXPECT_THAT(read_file(folder_ / "stop" / "status.json"), HasSubstr("\"cause\": \"diverged\""));
  // Without the limit the run ends normally, and the last lines contain the recorded loss; its perplexity is infinite.
  Words unlimited = wild;
  unlimited.push_back("train.max_loss=inf");
  const Outcome ended = run("end", unlimited);
  ASSERT_THAT(ended, Succeeds());
  const double printed = number_in(ended.out, "valid nll_nat ([0-9.e+]+)\n");
  const double recorded = number_in(read_file(folder_ / "end" / "metrics.jsonl"), kRecordedLoss);
  EXPECT_GT(recorded, 710) << "the loss is too small: its perplexity is finite";
  EXPECT_NEAR(printed / recorded, 1, 1e-5);
}

// The option for tensor cores is an error where it has no effect. A device that is chosen here is one as well, also for
// a dry run.
TEST_F(RunCommand, ProductsNeedAGpuAndFp32) {
  const auto refused = [&](Words words, const NamesMatcher& facts) {
    for (const bool dry : {false, true}) {
      if (dry) words.push_back("--dry-run");
      EXPECT_THAT(run("a", words), Refuses(facts));
      EXPECT_FALSE(std::filesystem::exists(path("a")));
    }
  };
  refused({"products=tf23"}, Names("products=tf23", "'tf32'?", "exact"));
  refused({"products=tf32"}, Names("override 'products=tf32': tf32", "the CPU (device: cpu)", "products to exact"));
  refused({"products=bf16x3", "device=cuda", "precision=bf16"},
          Names("override 'products=bf16x3': bf16x3", "precision is bf16", "products to exact"));
  if (lmx::load_cuda() == 0)
    refused({"products=tf32", "device=auto"}, Names("override 'products=tf32': tf32", "the CPU (device: auto)"));
}

TEST_F(RunCommand, Bf16SaysWhereItIsSlow) {
  const Outcome o = run("a", {"precision=bf16", "train.steps=2"});
  EXPECT_THAT(o, Succeeds());
  const bool slow = o.err.find("this CPU multiplies bf16 no faster") != std::string::npos;
  EXPECT_EQ(slow, lmx::multiplies_in_f32(lmx::DType::bf16)) << o.err;
}

// The losses of the same steps differ only by rounding, for both ways in which the CPU multiplies bf16.
TEST_F(RunCommand, Bf16InHardwareAndThroughFp32Agree) {
  const auto loss = [&](const std::string& way) -> std::optional<double> {
    std::map<std::string, std::string> settings = environment();
    settings["LMX_BF16"] = way;
    const Outcome o = run_process(command(way, {"precision=bf16", "train.steps=2"}), settings);
    if (o.code == 2 && o.err.find("this CPU has no instructions for bf16") != std::string::npos) return {};
    EXPECT_THAT(o, Succeeds());
    EXPECT_EQ(o.err.find("this CPU multiplies bf16 no faster") != std::string::npos, way == "fp32") << o.err;
    return number_in(read_file(folder_ / way / "metrics.jsonl"), kRecordedLoss);
  };
  const std::optional<double> fp32 = loss("fp32"), hardware = loss("hardware");
  ASSERT_TRUE(fp32 && *fp32 > 0.1);
  if (!hardware) GTEST_SKIP() << "this CPU has no instructions for bf16";
  EXPECT_NEAR(*hardware / *fp32, 1, 1e-3);
}

TEST_F(RunCommand, FullDisk) {
  fs::create_directory(path("disk"));
  if (mount("tmpfs", path("disk").c_str(), "tmpfs", 0, "size=100k") != 0)
    GTEST_SKIP() << "needs the right to mount a tmpfs";
  const Outcome o = run("disk/a", {"model.cells=64", "run.tensorboard=false"});
  Words left;
  for (const auto& entry : fs::recursive_directory_iterator(path("disk"))) left.push_back(entry.path().filename());
  umount(path("disk").c_str());
  EXPECT_THAT(o, Fails("No space left on device"));
  for (const std::string& name : left) {
    EXPECT_EQ(name.find("safetensors"), std::string::npos) << "an incomplete checkpoint is left";
    EXPECT_EQ(name.find(".tmp"), std::string::npos);
  }
}

TEST_F(RunCommand, TraceOfItsPhases) {
  ASSERT_THAT(run("a", {"train.steps=5", "--trace", path("t.json")}), Succeeds());
  const std::string trace = read_file(path("t.json"));
  for (const char* name : {"\"forward\"", "\"backward\"", "\"update\"", "\"validate\"", "\"checkpoint\""})
    EXPECT_THAT(trace, HasSubstr(name));
  EXPECT_TRUE(nlohmann::json::accept(trace));
}

// In a trace viewer each rank is a group of rows with its name.
TEST_F(RunCommand, TraceOfEveryRank) {
  ASSERT_THAT(run("a", {"train.steps=5", "--ranks", "3", "--trace", path("t.json")}), Succeeds());
  const auto trace = nlohmann::json::parse(read_file(path("t.json")));
  std::map<int, std::string> processes, rows;
  std::map<int, int> steps;
  for (const auto& e : trace["traceEvents"]) {
    const int rank = e["pid"];
    if (e["name"] == "process_name") processes[rank] = e["args"]["name"];
    if (e["name"] == "thread_name" && e["tid"] == 0) rows[rank] = e["args"]["name"];
    if (e["name"] != "backward") continue;
    ++steps[rank];
    EXPECT_GE(e["ts"], 0);
    EXPECT_GE(e["dur"], 0);
  }
  const std::map<int, std::string> names{{0, "rank 0"}, {1, "rank 1"}, {2, "rank 2"}};
  EXPECT_EQ(processes, names);
  EXPECT_EQ(rows, names);
  for (const auto& [rank, name] : names) EXPECT_GE(steps[rank], 5) << name;
}

TEST_F(BadInput, MisspeltKeys) {
  refused({"model.cels=4"}, {"model.cels", "'cells'?"});
  refused({"train.stesp=4"}, {"train.stesp", "'steps'?"});
  refused({"+optimiser={name: sgd}"}, {"optimiser", "'optimizer'?"});
  refused({"loss.sampels=4"}, {"sampels", "'samples'?"});
  refused({"data.vocabsize=4"}, {"vocabsize", "'vocab_size'?"});
  refused({"schedule={name: linaer}"}, {"linaer", "'linear'?"});
  refused({"sync={all: {params: '.*', strategy: alreduce}}"}, {"alreduce", "'allreduce'?"});
}

TEST_F(BadInput, PlaceInTheFile) {
  write("tiny.yaml", std::string(kTinyRecipe) + "modle: {}\n");
  refused({}, {path("tiny.yaml") + ":13:", "modle", "'model'?"});
}

TEST_F(BadInput, WrongTypesAndRanges) {
  refused({"model.cells=many"}, {"model.cells", "'many'"});
  refused({"model.cells=-4"}, {"model.cells", "[1, 1048576]", "-4"});
  refused({"batch.global=0"}, {"batch.global", ">= 1", "0"});
  refused({"batch.micro=9"}, {"batch.micro", "batch.global, 8"});
  refused({"optimizer.lr=fast"}, {"optimizer.lr", "number"});
  refused({"precision=fp4"}, {"precision", "fp32, bf16"});
  refused({"train.on_divergence=panic"}, {"train.on_divergence", "stop, skip, lower_lr"});
  refused({"train.ema=1.5"}, {"train.ema"});
  refused({"train.ema_params='('"}, {"train.ema_params", "regular expression"});
  refused({"model=3"}, {"model"});
  refused({"~model"}, {"no model"});
  // A misspelt key is not also reported as missing.
  const Outcome misspelt = run("none", {"lr_rule.name=linear", "+lr_rule.referense_batch=128", "model.cels=3"});
  EXPECT_EQ(misspelt.code, 2);
  EXPECT_THAT(misspelt.err,
              AllOf(Names("2 mistakes:", "lr_rule.referense_batch", "model.cels"), Not(HasSubstr("needs the batch"))));
}

TEST_F(BadInput, Ranks) {
  refused({"--ranks", "0"}, {"--ranks: '0'"});
  refused({"--ranks", "four"}, {"--ranks: 'four'"});
  refused({"--ranks", "2", "comm=mpi"}, {"--ranks 2", "comm=virtual comm.ranks=2", "'comm=mpi'"});
  refused({"--ranks", "2", "+comm=mpi"}, {"'+comm=mpi'"});
  refused({"--ranks", "2", "comm.ranks=4"}, {"'comm.ranks=4'"});
  refused({"comm.ranks=4"}, {"comm.ranks", "`self`", "comm.name: virtual"});
  refused({"comm={name: virtal}"}, {"'virtual'?"});
  refused({"--trace", path("none/t.json")}, {"--trace:", path("none/t.json"), "folder " + path("none")});
}

TEST_F(BadInput, Sync) {
  refused({"sync={a: {params: embedding, strategy: allreduce}}"}, {"no rule", "lstm.0.weight_ih"});
  refused({"sync={a: {params: '.*', strategy: allreduce}, b: {params: softmax, strategy: allreduce}}"},
          {"sync.b.params", "earlier rule"});
  refused({"sync={a: {params: '(', strategy: allreduce}}"}, {"sync.a.params", "regular expression"});
  refused({"sync={a: {params: '.*'}}"}, {"sync.a", "`strategy`"});
  refused({"sync={a: {params: '.*', strategy: allreduce, bucketmb: 3}}"}, {"sync.a.bucketmb", "'bucket_mb'?"});
}

TEST_F(BadInput, PluginOfAnotherAbi) {
  refused({"batcher={name: test_wrong_abi}", "--plugin-dir", build_path("/tests/plugins/wrong_abi")},
          {"test_wrong_abi.so:", "ABI 41", "this lmx"});
  refused({"batcher={name: test_good}", "--plugin-dir", build_path("/tests/plugins/wrong_build")},
          {"[batcher] ", "batcher plugin 'test_good'"});  // that folder has a sync plugin of this name
  refused({"sync={all: {params: '.*', strategy: test_good}}", "--plugin-dir", build_path("/tests/plugins/wrong_build")},
          {"test_good.so:", "Foreign-1.0-libstdc++-0123-nosan"});
}

TEST_F(BadInput, Data) {
  refused({"batcher.sequence_length=3000"}, {"sequence_length 3000", "train split"});
  refused({"batch.global=1000", "batch.micro=0"}, {"1000 sequences (batch.global)", "train split"});
  refused_text("missing.txt", "5", {"missing.txt"});
  write("empty.txt", "");
  refused_text("empty.txt", "5", {"empty.txt"});
  write("wrong.txt", "one two \xff three\n");
  refused_text("wrong.txt", "5", {"wrong.txt", "UTF-8"});
  std::string words;
  for (int i = 0; i < 400; ++i) words += "one two three four\n";
  write("small.txt", words);
  refused_text("small.txt", "50", {"vocab_size", "50"});
}

TEST_F(BadInput, CorpusThatVanished) {
  std::string words;
  for (int i = 0; i < 400; ++i) words += "one two three four\n";
  write("small.txt", words);
  const std::string recipe = kTinyRecipe, after = recipe.substr(recipe.find("batcher:"));
  write("tiny.yaml",
        "data: {name: text, files: [" + path("small.txt") + "], valid_fraction: 0.1, vocab_size: 6}\n" + after);
  ASSERT_THAT(run("a", {"train.steps=10", "loss.samples=3"}), Succeeds());
  fs::remove(path("small.txt"));
  for (const auto& words_of :
       {Words{"eval", path("a")}, Words{"run", path("tiny.yaml"), "train.steps=10", "loss.samples=3",
                                        "run.dir=" + path("a"), "--resume", path("a")}}) {
    EXPECT_THAT(run_lmx(words_of, environment()), Refuses("small.txt"));
  }
}

TEST_F(BadInput, DirectoryInUse) {
  fs::create_directory(path("used"));
  write("used/notes.txt", "x");
  EXPECT_THAT(run("used"), Refuses("not empty", "--resume"));
}

}  // namespace
}  // namespace lmx_test
