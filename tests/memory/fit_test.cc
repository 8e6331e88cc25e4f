// batch.fit: memory chooses the largest sub-batch that the estimate and a probe allow.
#include "comm/mpi_here.h"
#include "memory/memory_fixture.h"

namespace lmx_test {
namespace {

class Fit : public MemoryTest {
 protected:
  // Activations are most of the memory.
  static Words wide(const Words& more = {}) {
    return joined({"batch.global=64", "batch.micro=0", "batch.fit=memory", "batcher.sequence_length=20",
                   "data.train_tokens=20000", "train.steps=8", "train.eval_every=8", "checkpoint.every=8",
                   "train.eval_batch=1", "model.cells=64"},
                  more);
  }
  static Words with_batch(const nlohmann::json& fit) {
    return {"batch.global=" + fit["global"].dump(), "batch.micro=" + fit["micro"].dump(),
            "batch.micro_tokens=" + fit["micro_tokens"].dump(), "batch.fit=none"};
  }
};

// The estimate decides; the run is that of the same sub-batch, given by hand, in every bit.
TEST_F(Fit, DividesTheGivenBatch) {
  const Outcome whole = expect_run("whole", wide());
  EXPECT_EQ(fit("whole")["micro"], 64);
  EXPECT_EQ(fit("whole")["passes"], 1);
  const Outcome o = expect_run("fitted", wide({"memory.budget=0.002"}));
  const auto chosen = fit("fitted");
  EXPECT_EQ(chosen["global"], 64);
  EXPECT_GT(chosen["micro"], 1);
  EXPECT_LT(chosen["micro"], 64);
  EXPECT_LE(chosen["estimate_bytes"], 2'000'000);
  EXPECT_LE(chosen["peak_bytes"], 2'000'000);
  EXPECT_EQ(chosen["update_tokens"], 64 * 20);
  EXPECT_THAT(config("fitted"), AllOf(HasSubstr("global: 64\n"), HasSubstr("micro: " + chosen["micro"].dump() + "\n")));
  EXPECT_THAT(o.err, Names("batch.fit: passes of " + chosen["micro"].dump() + " sequences, ",
                           "an update has 64 sequences, 1,280 tokens", "the probe of step 1"));
  expect_run("by_hand", joined(wide(), with_batch(chosen)));
  expect_same("fitted", "by_hand", 8);
  EXPECT_NE(state("fitted", 8), state("whole", 8)) << "other additions";
  EXPECT_NEAR(series("fitted", "train", "nll_nat").back() / series("whole", "train", "nll_nat").back(), 1, 1e-5);
}

// Sub-batches of parallel text are joined or divided; the batch stays the same.
TEST_F(Fit, JoinsAndDividesSubBatches) {
  use_pairs();
  expect_run("whole", {});
  for (const std::string tokens : {"1", "15", "75", "1000"}) {
    const std::string dir = "passes_" + tokens;
    expect_run(dir, {"batch.micro_tokens=" + tokens});
    const std::vector<double> losses = series(dir, "train", "nll_nat"), whole = series("whole", "train", "nll_nat");
    ASSERT_EQ(losses.size(), whole.size());
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i] / whole[i], 1, 1e-4) << tokens;
    EXPECT_NE(state(dir, 20), state("whole", 20)) << "other additions";
  }
  expect_run("room", {"batch.fit=memory"});
  EXPECT_EQ(fit("room")["micro_tokens"], 160);
  expect_run("fitted", {"batch.fit=memory", "memory.budget=0.0004", "--ranks", "2"});
  const auto chosen = fit("fitted");
  EXPECT_EQ(chosen["global"], 4);
  EXPECT_LT(chosen["micro_tokens"], 80);
  expect_run("by_hand", joined(with_batch(chosen), {"--ranks", "2"}));
  expect_same("fitted", "by_hand", 20);
  expect_run("global", {"batch.fit=memory", "~batch.global", "--ranks", "2"});
  EXPECT_EQ(fit("global")["global"].get<int>() % 2, 0);
}

TEST_F(Fit, MicroIsItsLimit) {
  expect_run("a", wide({"batch.micro=5"}));
  EXPECT_EQ(fit("a")["micro"], 5);
  EXPECT_EQ(fit("a")["passes"], 13);
}

// Without batch.global, the batch is what fits into one pass of every rank.
TEST_F(Fit, ChoosesTheWholeBatch) {
  const Words words = wide({"~batch.global", "memory.budget=0.002"});
  const Outcome o = expect_run("one", words);
  const auto one = fit("one");
  EXPECT_EQ(one["passes"], 1);
  EXPECT_EQ(one["global"], one["micro"]);
  EXPECT_GT(one["global"], 1);
  expect_run("by_hand", joined(wide(), with_batch(one)));
  expect_same("one", "by_hand", 8);
  // Ranks of one process share the memory, and the batch counts all of them.
  expect_run("three", joined(words, {"--ranks", "3"}));
  const auto three = fit("three");
  EXPECT_EQ(three["global"].get<int>(), 3 * three["micro"].get<int>());
  EXPECT_LT(three["micro"], one["micro"]);
  // The text limits the batch if the memory does not: 20,000 tokens are 100 steps of 9 sequences.
  expect_run("text", wide({"~batch.global"}));
  EXPECT_EQ(fit("text")["global"], 9);
}

TEST_F(Fit, AResumedRunKeepsTheChoice) {
  for (const Words& global : {Words{}, Words{"~batch.global"}}) {
    const Words words = wide(joined(global, {"memory.budget=0.002"}));
    expect_run("whole", words);
    expect_run("cut", joined(words, {"--until", "4"}));
    // Another budget would lead to another choice.
    const Outcome o = expect_run("cut", joined(words, {"memory.budget=1", "--resume", path("cut")}));
    EXPECT_THAT(o.err, Not(HasSubstr("batch.fit: ")));
    EXPECT_EQ(state("cut", 8), state("whole", 8));
    EXPECT_EQ(metrics("cut"), metrics("whole"));
    EXPECT_EQ(config("cut").find("micro: " + fit("whole")["micro"].dump() + "\n") == std::string::npos, false);
    for (const char* dir : {"whole", "cut"}) std::filesystem::remove_all(path(dir));
  }
}

TEST_F(Fit, NothingFits) {
  for (const Words& ranks : {Words{}, Words{"--ranks", "2"}}) {
    const Outcome o = run("a", wide(joined(ranks, {"memory.budget=0.0002"})));
    EXPECT_FALSE(std::filesystem::exists(path("a")));
    EXPECT_THAT(o, Refuses("[memory] batch.fit: out of memory even with passes of ", "memory.budget", "200 kB",
                           "parameters ", "optimizer ", "activations ", "train.eval_batch"));
  }
  const Outcome dry = run("a", wide({"memory.budget=0.0002", "--dry-run"}));
  EXPECT_EQ(dry.code, 2);
  EXPECT_THAT(dry.out, Names("memory: not enough: ", "batch.fit: out of memory", "data: available"));
}

TEST_F(Fit, ADryRunChoosesByTheEstimate) {
  const Outcome dry = run("a", wide({"--dry-run"}));
  EXPECT_THAT(dry, Prints("batch.fit: one pass of 64 sequences: ", "preflight: the probe of batch.fit"));
  EXPECT_THAT(run("a", wide({"memory.budget=0.002", "--dry-run"})),
              Prints(HasSubstr("batch.fit: passes of "), Not(HasSubstr("passes of 64 "))));
  // How many ranks share the batch, only a launcher knows.
  EXPECT_THAT(run("a", wide({"comm={name: mpi, ranks: 0}", "--dry-run"})).out, HasSubstr("batch.fit, as one rank: "));
}

// All checks that need no step precede the first probe.
TEST_F(Fit, ChecksPrecedeTheProbe) {
  expect_run("taken", {"train.steps=1"});
  write("file", "no folder");
  for (const auto& [words, facts] :
       std::vector<std::pair<Words, Words>>{{{"run.dir=" + path("taken")}, {"[run]", "exists and is not empty"}},
                                            {{"run.dir=" + path("file/a")}, {"[run] run.dir ", "file is no folder"}},
                                            {{"train.final_bleu=valid"}, {"train.final_bleu"}},
                                            {{"--trace", path("none/t.json")}, {"--trace"}},
                                            {{"train.ema_params=nothing"}, {"train.ema_params"}}}) {
    const Outcome o = run("a", wide(words));
    EXPECT_NE(o.code, 0) << words[0];
    EXPECT_THAT(o.err, NamesMatcher(facts));
    EXPECT_THAT(o.err, Not(HasSubstr("batch.fit: "))) << words[0];
    EXPECT_FALSE(std::filesystem::exists(path("a")));
  }
  EXPECT_THAT(expect_run("b", wide()).err, HasSubstr("batch.fit: probe 1: "));
}

TEST_F(Fit, TheProbeTakesThePlaceOfAPreflight) {
  expect_run("a", wide({"train.preflight=true"}));
  EXPECT_THAT(log("a"), AllOf(HasSubstr("the probe of step 1"), Not(HasSubstr("preflight: step "))));
}

TEST_F(Fit, ZeroNeedsFit) {
  EXPECT_THAT(run("a", {"batch.global=0"}), Refuses("batch.global", "batch.fit", "memory"));
}

// The model of tests/plugin/plugins/faulty_model.cc takes memory that a count does not see: the first probe fails on
// every CPU.
TEST_F(Fit, AFailedProbeLeavesNoTrace) {
  for (const Words& global : {Words{}, Words{"~batch.global"}}) {
    const Words words =
        wide(joined(global, {"--plugin-dir", build_path("/tests/plugins/own_kinds"), "model.name=test_model",
                             "~model.embedding", "~model.cells", "~model.projection", "model.fault=2", "model.size=128",
                             "data.train_tokens=200000", "memory.budget=0.006"}));
    const Outcome o = expect_run("fitted", words);
    const auto chosen = fit("fitted");
    EXPECT_GT(chosen["probes"], 1) << o.err;
    EXPECT_THAT(o.err, Names("no room for passes of ", "[memory] cpu cannot allocate ", "6.0 MB"));
    // The log of the run has what was printed before the run had a folder, in its order.
    EXPECT_THAT(log("fitted"),
                testing::ContainsRegex("batch.fit: probe 1: (.|\n)*batch.fit: no room for passes of [0-9]+ sequences: "
                                       "(.|\n)*batch.fit: probe 2: (.|\n)*run /(.|\n)*; larger passes did not fit\n"));
    expect_run("by_hand", joined(words, with_batch(chosen)));
    expect_same("fitted", "by_hand", 8);
    for (const char* dir : {"fitted", "by_hand"}) std::filesystem::remove_all(path(dir));
  }
}

// The estimate lacks the 34 MB that cuBLAS takes on the device, so that the first probe fails there, too.
TEST_F(Fit, TheMemoryOfADeviceCounts) {
  if (!has_device()) GTEST_SKIP() << "this build has no emulated device";
  const Words words = wide({"train.steps=2", "train.eval_every=2", "checkpoint.every=2"});
  constexpr int64_t kBytes = 40'000'000;
  const Outcome o = run_on_device("fitted", words, kBytes);
  ASSERT_THAT(o, Succeeds());
  const auto chosen = fit("fitted");
  EXPECT_EQ(chosen["allowed_bytes"], kBytes * 9 / 10);
  EXPECT_LE(chosen["peak_bytes"], kBytes * 9 / 10);
  EXPECT_GT(chosen["probes"], 1) << o.err;
  EXPECT_THAT(o.err, Names("no room for passes of 64 sequences", "[memory] cuda:0 cannot allocate "));
  const Outcome by_hand = run_on_device("by_hand", joined(words, with_batch(chosen)), kBytes);
  ASSERT_THAT(by_hand, Succeeds());
  expect_same("fitted", "by_hand", 2);
}

// All processes take the smallest choice.
TEST_F(Fit, ProcessesAgree) {
  for (const std::string comm : {"gloo", "mpi"}) {
    if (comm == "mpi" && !why_no_mpi().empty()) continue;
    const Outcome probe = run("probe", {"comm={name: " + comm + ", ranks: 1}", "train.steps=1"});
    std::filesystem::remove_all(path("probe"));
    if (probe.code != 0) continue;
    const Words words = wide({"comm={name: " + comm + ", ranks: 2}", "memory.budget=0.002"});
    expect_run(comm, words);
    const auto chosen = fit(comm);
    EXPECT_GT(chosen["micro"], 1);
    EXPECT_LT(chosen["micro"], 32);
    expect_run(comm + "_by_hand", joined(words, with_batch(chosen)));
    expect_same(comm, comm + "_by_hand", 8);
    const Outcome small = run(comm + "_small", joined(words, {"memory.budget=0.0002"}));
    EXPECT_THAT(small, Refuses());
  }
}

// One process has a host for itself, and another one shares its host, so that the memory of the second one allows less.
TEST_F(Fit, TheHostWithLeastMemoryDecides) {
  if (run("probe", {"comm={name: gloo, ranks: 1}", "train.steps=1"}).code != 0) GTEST_SKIP() << "no comm=gloo";
  const Words words = wide({"memory.budget=0.0025"});  // the first process alone would take 32 sequences
  expect_run("alone", joined(words, {"comm={name: gloo, ranks: 2}"}));  // both processes share a host
  for (const pid_t rank : start_hosts("a", words)) EXPECT_EQ(wait_for(rank), 0);
  EXPECT_EQ(fit("a")["micro"], fit("alone")["micro"]);
  EXPECT_THAT(log("a"), Not(HasSubstr("probe 1: one pass of 32 sequences")));
  EXPECT_EQ(state("a", 8), state("alone", 8));
}

TEST_F(Fit, AKilledProbeLeavesNothing) {
  const Words words = wide({"memory.budget=0.4", "model.cells=900", "train.steps=2", "train.eval_every=2"});
  expect_run("whole", words);
  int killed = 0;
  for (int time = 100; time <= 900; time += 200) {
    const pid_t child = start(command("killed", joined(words, {"--resume", "auto"})));
    std::this_thread::sleep_for(std::chrono::milliseconds(time));
    kill(child, SIGKILL);
    const int code = wait_for(child);
    if (code == 128 + SIGKILL) ++killed;
    if (std::filesystem::exists(folder_ / "killed")) break;
  }
  EXPECT_GT(killed, 0);
  expect_run("killed", joined(words, {"--resume", "auto"}));
  EXPECT_EQ(state("killed", 2), state("whole", 2));
}

}  // namespace
}  // namespace lmx_test
