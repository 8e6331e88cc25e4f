// The output and the records of a run whose plugin fails, or whose plugin's build changes.
#include <fcntl.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>

#include "process/run_fixture.h"

namespace lmx_test {
namespace {

using lmx::str;
using nlohmann::json;

const std::string kFaulty = build_path("/tests/plugins/own_kinds"), kModel = kFaulty + "/test_model/test_model.so";

class PluginFailures : public RunTest {
 protected:
  PluginFailures() {
    write("plugin.yaml", R"(
data: {name: synthetic, vocab_size: 60, train_tokens: 3000, valid_tokens: 300, test_tokens: 200, branching: 8, classes: 6}
batcher: {name: tbptt, sequence_length: 6}
batch: {global: 8}
model: {name: test_model, size: 8}
loss: {name: full_softmax}
optimizer: {name: adam, lr: 0.01}
schedule: {name: constant}
train: {steps: 6, log_every: 2, eval_every: 3}
checkpoint: {every: 3}
threads: 1
)");
  }
  // With the model of tests/plugin/plugins/faulty_model.cc.
  Outcome train(int fault, const Words& more = {}) const {
    return train_with(kFaulty, "plugin.yaml", joined({str("model.fault=", fault)}, more));
  }
  Outcome train_with(const std::string& plugins, const std::string& recipe, const Words& more) const {
    return run_process(
        joined({build_path("/bin/lmx"), "run", path(recipe), "run.dir=" + path("a"), "--plugin-dir", plugins}, more),
        crashes_unhandled(environment()));
  }
  json status() const { return json::parse(read_file(path("a/status.json"))); }
};

TEST_F(PluginFailures, AnExceptionNamesThePluginAndTheFunction) {
  EXPECT_THAT(train(4), Fails("forward()", "model plugin 'test_model'", kModel, "map::at"));
  EXPECT_EQ(status()["state"], "failed");
  EXPECT_THAT(status()["reason"].get<std::string>(), HasSubstr("test_model"));
}

TEST_F(PluginFailures, AnErrorOfLmxNamesThePluginAndTheFunction) {
  EXPECT_THAT(train(9),
              Refuses("there is no parameter 'wieght' (did you mean 'weight'?) (in forward() of the model plugin "
                      "'test_model' (" +
                      kModel + "))"));
  EXPECT_THAT(status()["reason"].get<std::string>(), HasSubstr("test_model"));
  std::filesystem::remove_all(path("a"));
  EXPECT_THAT(train(10), Fails("[internal]", "tokens (in forward() of the model plugin 'test_model' (" + kModel));
}

TEST_F(PluginFailures, ACrashNamesThePluginAndEndsTheRunsStatus) {
  const Outcome o = train(5);
  EXPECT_NE(o.code, 0);
  EXPECT_THAT(o.err, Names("Segmentation fault", "forward()", "model plugin 'test_model'", kModel));
  EXPECT_EQ(status()["state"], "failed");
  EXPECT_EQ(status()["step"], 0);
  EXPECT_THAT(status()["reason"].get<std::string>(), Names("model plugin 'test_model'"));
  EXPECT_THAT(status()["time"].get<std::string>(), testing::ContainsRegex("^20[0-9-]+T[0-9:]+"));
}

// Rank 0 is stopped while it writes the run's files: its log is a pipe that is full. Another rank must not begin its
// first step before, because its crash would find no status.json.
TEST_F(PluginFailures, ARankThatCrashesFirstWaitsForTheStatus) {
  constexpr int kPipeBytes = 4096;
  std::filesystem::create_directory(path("a"));
  const std::string log = path("a/log.txt");
  ASSERT_EQ(mkfifo(log.c_str(), 0600), 0);
  const int pipe = open(log.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(pipe, 0);
  fcntl(pipe, F_SETPIPE_SZ, kPipeBytes);
  const std::string line(64, '.');
  while (::write(pipe, line.data(), line.size()) > 0) {
  }
  Words command{"/usr/bin/env"};
  for (const auto& [name, value] : crashes_unhandled({})) command.push_back(name + "=" + value);
  const pid_t child = start(joined(command, {build_path("/bin/lmx"), "run", path("plugin.yaml"), "--resume", path("a"),
                                             "--ranks", "2", "--plugin-dir", kFaulty, "model.fault=5"}));
  EXPECT_TRUE(wait_until(child, [&] { return std::filesystem::exists(path("a/provenance.json")); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the other rank would crash in this time
  char text[kPipeBytes];
  while (wait_until(child, [&] { return read(pipe, text, sizeof text) > 0; })) {
  }
  EXPECT_NE(wait_for(child), 0);
  close(pipe);
  ASSERT_TRUE(std::filesystem::exists(path("a/status.json")));
  EXPECT_EQ(status()["state"], "failed");
  EXPECT_THAT(status()["reason"].get<std::string>(), Names("model plugin 'test_model'"));
}

struct FailingCall {
  std::string function, kind, name;
  int fault;
  bool crashes;
};
class FailingCalls : public PluginFailures, public testing::WithParamInterface<FailingCall> {};

Words faulty_batcher(int fault) {
  return {"~batcher", str("+batcher={name: test_batcher, sequence_length: 6, fault: ", fault, "}")};
}
// One rank: with more of them, another rank may crash before rank 0 has made the run's files.
Words faulty_sync(int fault) {
  return {str("++sync={rest: {params: '.*', strategy: test_top_k, fault: ", fault, "}}"), "--ranks", "1"};
}

TEST_P(FailingCalls, NameThePluginAndTheFunction) {
  const auto& [function, kind, name, fault, crashes] = GetParam();
  const Outcome o = train_with(kFaulty, "tiny.yaml", kind == "batcher" ? faulty_batcher(fault) : faulty_sync(fault));
  EXPECT_NE(o.code, 0);
  const std::string plugin = kind + " plugin '" + name + "'";
  EXPECT_THAT(o.err, Names(function, plugin, str(kFaulty, "/", name, "/", name, ".so"),
                           crashes ? "Segmentation fault" : "map::at"));
  EXPECT_EQ(status()["state"], "failed");
  EXPECT_THAT(status()["reason"].get<std::string>(), HasSubstr(plugin));
}
INSTANTIATE_TEST_SUITE_P(All, FailingCalls,
                         testing::Values(FailingCall{"batch()", "batcher", "test_batcher", 7, false},
                                         FailingCall{"batch()", "batcher", "test_batcher", 1, true},
                                         FailingCall{"reduce()", "sync", "test_top_k", 6, false},
                                         FailingCall{"reduce()", "sync", "test_top_k", 7, true}),
                         [](const auto& one) { return str(one.param.kind, '_', one.param.fault); });

TEST_F(PluginFailures, ABatchWithoutItsFormIsAnError) {
  for (const auto& [fault, text] : {std::pair{11, "gives sequence 3 of slots 0 to 3 the slot 4, expected 3"},
                                    {12, "gives 4 slots and 3 flags `fresh` for 4 sequences"},
                                    {13, "gives inputs (24) and targets (24); both must be (4, T)"},
                                    {14, "gives inputs (4, 6) and targets (3, 6)"}}) {
    std::filesystem::remove_all(path("a"));
    EXPECT_THAT(train_with(kFaulty, "tiny.yaml", faulty_batcher(fault)),
                Refuses("error: [batcher] test_batcher ", text))
        << fault;
  }
}

TEST_F(PluginFailures, ProvenanceNamesFoldersAndPluginsAndAResumeTellsOfAnotherBuild) {
  ASSERT_THAT(train(0, {"--until", "3", "--config-dir", path("")}), Succeeds());
  const json start = json::parse(read_file(path("a/provenance.json")))["starts"][0];
  const std::string words = start["command_line"].dump();
  EXPECT_THAT(words, Names("\"--plugin-dir\",\"" + kFaulty, "--config-dir"));
  const json plugin = start["plugins"]["model/test_model"];
  EXPECT_EQ(plugin["version"], "1.2.3");
  EXPECT_EQ(plugin["path"], kModel);
  EXPECT_EQ(plugin["sha256"].get<std::string>().size(), 64u);

  // One more byte at the end of the library changes only its hash.
  const std::string other = path("other");
  fs::copy(fs::path(kModel).parent_path(), other);
  std::ofstream(other + "/test_model.so", std::ios::binary | std::ios::app) << '\0';
  const auto resumed = [&](const std::string& plugins, const char* until) {
    const Outcome o = train_with(plugins, "plugin.yaml", {"--resume", path("a"), "--until", until});
    EXPECT_THAT(o, Succeeds());
    return o.err;
  };
  EXPECT_THAT(resumed(kFaulty, "4"), Not(HasSubstr("another build")));
  EXPECT_THAT(resumed(other, "5"), Names("model/test_model", "another build", "1.2.3"));
  EXPECT_THAT(resumed(other, "6"), Not(HasSubstr("another build")));
}

// A model with a memory of earlier positions stores it for every sequence of the batch and of a validation, and once
// more while it is gathered and saved.
TEST_F(PluginFailures, TheMemoryPlanCountsTheCarriedState) {
  const std::string window = "model.window=64000";
  const Outcome planned = train(0, {"--dry-run", window}), trained = train(0, {window});
  EXPECT_THAT(planned, Succeeds());
  EXPECT_THAT(trained, Succeeds());
  const double bytes = bytes_of(planned.out, "activations");
  EXPECT_GT(bytes, 8.0 * 64000 * 8 * 4);
  EXPECT_NEAR(bytes, bytes_of(trained.err, "activations"), 0.02 * bytes);
}

// Runs of a plugin's decoder that consists of public ops and adds a term to the loss: checks, records, ranks, text.

const std::string kPlugins = build_path("/tests/plugins/composed");

class ComposedRun : public RunTest {
 protected:
  ComposedRun() {
    write("tiny.yaml",
          "data: {name: synthetic, vocab_size: 60, train_tokens: 3000, valid_tokens: 300, test_tokens: 200, branching: "
          "8, "
          "classes: 6}\n"
          "batcher: {name: random_windows, sequence_length: 6}\nbatch: {global: 8}\n"
          "model: {name: composed_decoder, layers: 1, d: 16, heads: 4, kv_heads: 2, ffn: 24, activation: 0.5}\n"
          "loss: {name: full_softmax}\noptimizer: {name: sgd, lr: 0.5}\nclip: 1.0\n"
          "train: {steps: 12, log_every: 3, eval_every: 12}\nthreads: 1\n");
  }
  Outcome lmx(const Words& words) const { return run_lmx(joined(words, {"--plugin-dir", kPlugins}), environment()); }
  Outcome train(const std::string& name, const Words& more = {}) const {
    return run(name, joined(more, {"--plugin-dir", kPlugins}));
  }
  static void expect_near(const std::vector<double>& a, const std::vector<double>& b, double relative) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], relative * std::abs(b[i])) << i;
  }
};

TEST_F(ComposedRun, PassesItsKindsChecks) {
  const std::string library = kPlugins + "/composed_decoder/composed_decoder.so";
  EXPECT_THAT(run_lmx({"plugins", "check", library, "--config", "{layers: 2, d: 16, heads: 4, kv_heads: 2, ffn: 8}"},
                      environment()),
              Prints("ok    decoding ", "ok    gradients ", " 0 failed\n"));
}

// A loss term is divided like the likelihood: the gradients of ranks and micro-batches sum to that of one process, and
// they record the same term.
TEST_F(ComposedRun, TermsAreThoseOfOneProcess) {
  ASSERT_THAT(train("one"), Succeeds());
  const std::vector<double> terms = series("one", "train", "loss/activation");
  ASSERT_EQ(terms.size(), 4u);
  EXPECT_GT(terms[0], 0);
  for (const auto& [name, more] : std::vector<std::pair<std::string, Words>>{
           {"ranks", {"--ranks", "2"}}, {"micro", {"batch.micro=2"}}, {"uneven", {"--ranks", "3", "batch.micro=1"}}}) {
    ASSERT_THAT(train(name, more), Succeeds());
    expect_near(series(name, "train", "loss/activation"), terms, 1e-5);
    expect_near(series(name, "train", "nll_nat"), series("one", "train", "nll_nat"), 1e-5);
    expect_near(series(name, "valid", "ppl"), series("one", "valid", "ppl"), 1e-5);
  }
}

// Before the first update both runs have the same likelihood. Then the term reduces the features.
TEST_F(ComposedRun, PerplexityLeavesTermsOut) {
  const Words each{"train.log_every=1"};
  ASSERT_THAT(train("with", each), Succeeds());
  ASSERT_THAT(train("without", {"train.log_every=1", "model.activation=0"}), Succeeds());
  const std::vector<double> with = series("with", "train", "nll_nat"), without = series("without", "train", "nll_nat");
  EXPECT_EQ(with.at(0), without.at(0));
  EXPECT_NE(with.at(5), without.at(5));
  EXPECT_NEAR(series("with", "train", "ppl").at(0), std::exp(with[0]), 1e-3);
  EXPECT_EQ(series("without", "train", "loss/activation").at(3), 0);
  EXPECT_TRUE(series("with", "valid", "loss/activation").empty());
}

TEST_F(ComposedRun, AResumedRunRecordsTheSameTerms) {
  const Words often{"train.log_every=5", "checkpoint.every=1"};
  ASSERT_THAT(train("whole", often), Succeeds());
  ASSERT_THAT(train("halves", {"train.log_every=5", "checkpoint.every=1", "--until", "3"}), Succeeds());
  ASSERT_THAT(train("halves", {"train.log_every=5", "checkpoint.every=1", "--resume", "auto"}), Succeeds());
  EXPECT_EQ(series("halves", "train", "loss/activation"), series("whole", "train", "loss/activation"));
}

TEST_F(ComposedRun, Generates) {
  ASSERT_THAT(train("a"), Succeeds());
  const Outcome o = lmx({"generate", path("a"), "--tokens", "30"});
  ASSERT_THAT(o, Succeeds());
  EXPECT_EQ(o.out, lmx({"generate", path("a"), "--tokens", "30"}).out);
  EXPECT_NE(o.out, lmx({"generate", path("a"), "--tokens", "30", "--seed", "2"}).out);
}

}  // namespace
}  // namespace lmx_test
