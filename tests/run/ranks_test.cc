// `lmx run` with several ranks: threads of one process or separate processes give the same bits, and errors appear
// once.
#include <random>

#include "app/jobs/launcher.h"
#include "comm/mpi_here.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

class RanksTest : public RunTest {
 protected:
  static void need_mpi() {
    if (const std::string why = why_no_mpi(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(RanksTest, VirtualRanksSayWhatTravelled) {
  const Outcome o = run("v", {"--ranks", "3"});
  ASSERT_THAT(o, Warns("3 virtual ranks", "all ranks sent", "control", "all_gather"));
  EXPECT_EQ(count_of(o.out, "valid ppl"), count_of(o.out, "\nvalid ppl") + count_of(o.out, "best valid ppl"));
}

TEST_F(RanksTest, AHostHasAtMostSoManyProcesses) {
  for (const auto& [ranks, limit] : {std::pair{"4097", "4096 ranks on a host"},
                                     {"1048577", "[0, 1048576]"},
                                     {"4294967297", "[0, 1048576]"}}) {  // the last one is 1 in 32 bits
    EXPECT_THAT(run("a", {"comm={name: gloo, ranks: " + std::string(ranks) + "}"}), Refuses("comm", ranks, limit));
    EXPECT_FALSE(fs::exists(path("a")));
  }
}

// Times are sent with the numbers of a record, and the lengths of their texts differ between runs.
TEST_F(RanksTest, EqualRunsSendEqualBytes) {
  const auto bytes = [&](const std::string& dir) {
    std::vector<std::pair<double, double>> all;
    for (const auto& record : records(dir, "train"))
      all.emplace_back(record["comm_sent_bytes"], record["comm_received_bytes"]);
    return all;
  };
  for (const char* dir : {"a", "a_longer_name"})
    ASSERT_THAT(run(dir, {"--ranks", "2", "train.log_every=1"}), Succeeds()) << dir;
  EXPECT_GT(bytes("a").size(), 4u);
  EXPECT_EQ(bytes("a"), bytes("a_longer_name"));
}

TEST_F(RanksTest, ProcessesThatGlooConnectsAndThreadsGiveTheSameBits) {
  const Outcome processes = run("g", {"comm={name: gloo, ranks: 3}"});
  if (processes.err.find("no Gloo") != std::string::npos) GTEST_SKIP() << processes.err;
  ASSERT_THAT(processes, Succeeds());
  ASSERT_THAT(run("v", {"--ranks", "3"}), Succeeds());
  EXPECT_EQ(model("g"), model("v"));
  EXPECT_EQ(metrics("g"), metrics("v"));
  EXPECT_EQ(count_of(processes.out, "\nvalid ppl"), 1u) << processes.out;
}

// Processes exchange in parallel with steps, threads do not; the last exchange ends with the run.
TEST_F(RanksTest, ExchangesBesideStepsGiveTheSameBits) {
  const Words streaming{"sync={all: {params: .*, strategy: diloco, every: 4, fragments: 2, delay: 3, mix: 0.5}}",
                        "train.ema=0", "train.steps=24"};
  const auto with = [&](const std::string& group) {
    Words all = streaming;
    all.push_back(group);
    return all;
  };
  const Outcome processes = run("g", with("comm={name: gloo, ranks: 2}"));
  if (processes.err.find("no Gloo") != std::string::npos) GTEST_SKIP() << processes.err;
  ASSERT_THAT(processes, Succeeds());
  ASSERT_THAT(run("v", with("comm={name: virtual, ranks: 2}")), Succeeds());
  EXPECT_EQ(model("g"), model("v"));
  EXPECT_EQ(metrics("g"), metrics("v"));
}

// The tables are summed in each step, beside which nothing is exchanged. Step 12 is in the middle of a period.
TEST_F(RanksTest, RulesOfBothKindsGiveTheSameBits) {
  const auto with = [](const std::string& group) -> Words {
    return {
        "sync={tables: {params: embedding|softmax, strategy: unique}, rest: {params: .*, strategy: diloco, "
        "every: 5, fragments: 2, delay: 2, mix: 0.5}}",
        "train.ema=0", "train.steps=12", "train.eval_every=12", group};
  };
  const auto of_rank = [&](const std::string& dir, int rank) {
    return read_file(folder_ / dir / "checkpoints" / "step-12" / ("rank-" + std::to_string(rank) + ".safetensors"));
  };
  const auto expect_threads = [&](const std::string& dir) {
    EXPECT_EQ(model(dir, 12), model("v", 12));
    EXPECT_EQ(metrics(dir), metrics("v"));
    for (const int rank : {0, 1, 2}) EXPECT_EQ(of_rank(dir, rank), of_rank("v", rank)) << rank;
    EXPECT_NE(of_rank(dir, 0), of_rank(dir, 1));
  };
  ASSERT_THAT(run("v", with("comm={name: virtual, ranks: 3}")), Succeeds());
  const Outcome gloo = run("g", with("comm={name: gloo, ranks: 3}"));
  if (gloo.err.find("no Gloo") == std::string::npos) {
    ASSERT_THAT(gloo, Succeeds());
    expect_threads("g");
  }
  need_mpi();
  if (IsSkipped()) return;
  const Outcome mpi = run("m", with("comm={name: mpi, ranks: 3}"));
  if (mpi.code == 2 && mpi.err.find("no MPI") != std::string::npos) GTEST_SKIP() << mpi.err;
  ASSERT_THAT(mpi, Succeeds());
  expect_threads("m");
}

TEST_F(RanksTest, ProcessesAndThreadsGiveTheSameBits) {
  need_mpi();
  if (IsSkipped()) return;
  ASSERT_THAT(run("v", {"--ranks", "3"}), Succeeds());
  const Outcome processes = run("m", {"comm={name: mpi, ranks: 3}"});
  if (processes.code == 2 && processes.err.find("no MPI") != std::string::npos) GTEST_SKIP() << processes.err;
  ASSERT_THAT(processes, Succeeds());
  EXPECT_EQ(model("m"), model("v"));
  EXPECT_EQ(metrics("m"), metrics("v"));
  EXPECT_EQ(count_of(processes.out, "\nvalid ppl"), 1u) << processes.out;
  EXPECT_EQ(count_of(processes.err, "vocabulary"), 1u) << processes.err;
}

// The bits of a deterministic run do not depend on the number of cores that a process may use.
TEST_F(RanksTest, BitsDoNotDependOnTheMachineWhereTheRecipeSaysNoThreads) {
  need_mpi();
  if (IsSkipped()) return;
  const auto with = [](Words more) {
    more.insert(more.end(),
                {"threads=0", "model={name: lstm, embedding: 96, cells: 200, projection: 96}", "train.steps=8",
                 "batch={global: 16, micro: 0}", "data.vocab_size=3000", "data.train_tokens=6000"});
    return more;
  };
  const auto threads_of = [&](const std::string& dir) {
    return nlohmann::json::parse(read_file(folder_ / dir / "provenance.json"))["starts"][0]["compute"]["threads"];
  };
  const Outcome threads = run("v", with({"--ranks", "1"}));
  ASSERT_THAT(threads, Succeeds());
  const Outcome processes = run("m", with({"comm={name: mpi, ranks: 1}"}));
  if (processes.code == 2 && processes.err.find("no MPI") != std::string::npos) GTEST_SKIP() << processes.err;
  ASSERT_THAT(processes, Succeeds());
  EXPECT_FALSE(model("m", 8).empty());
  EXPECT_TRUE(model("m", 8) == model("v", 8));
  EXPECT_EQ(threads_of("m"), 1);
  EXPECT_EQ(threads_of("v"), 1);
  if (lmx::app::jobs::own_core_count() < 2) return;
  EXPECT_THAT(processes.err, Names("cores", "threads="));
  ASSERT_THAT(run("d", with({"comm={name: mpi, ranks: 1}", "deterministic=false"})), Succeeds());
  EXPECT_GT(threads_of("d"), 1);
}

// Each thread's stack needs addresses, of which this process may have few.
TEST_F(RanksTest, MoreThreadsThanTheSystemAllows) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's shadow memory needs more addresses than this test's limit";
#endif
  if (on_path("prlimit").empty()) GTEST_SKIP() << "there is no prlimit (Debian: util-linux)";
  Words words{"prlimit", "--as=4000000000"};
  for (const std::string& word : command("v", {"--ranks", "5000"})) words.push_back(word);
  EXPECT_THAT(run_process(words, environment()), Fails("[virtual]", "5000", "3814 MiB", "ulimit -v"));
  EXPECT_FALSE(fs::exists(path("v")));
}

TEST_F(RanksTest, ASignalToAJobSavesAndOtherNumbersOfRanksGoOn) {
  need_mpi();
  if (IsSkipped()) return;
  const Words longer{"train.steps=240", "checkpoint.every=240", "train.eval_every=240", "train.log_every=10"};
  const auto with = [&](const Words& more) { return joined(more, longer); };
  const Outcome whole = run("whole", with({"comm={name: mpi, ranks: 2}"}));
  if (whole.code == 2 && whole.err.find("no MPI") != std::string::npos) GTEST_SKIP() << whole.err;
  ASSERT_THAT(whole, Succeeds());
  const pid_t child = start(command("cut", with({"comm={name: mpi, ranks: 2}"})));
  ASSERT_TRUE(wait_for_records(child, "cut"));
  kill(child, SIGTERM);
  EXPECT_NE(wait_for(child), 0);
  EXPECT_THAT(read_file(folder_ / "cut" / "status.json"), HasSubstr("\"interrupted\""));
  for (const char* copy : {"three", "threads", "one"}) fs::copy(path("cut"), path(copy), fs::copy_options::recursive);
  const auto go_on = [&](const std::string& dir, const std::string& comm) {
    EXPECT_THAT(run(dir, with({"comm=" + comm, "--resume", path(dir)})), Succeeds());
    return model(dir, 240);
  };
  EXPECT_EQ(go_on("cut", "{name: mpi, ranks: 2}"), model("whole", 240));
  const std::string three = go_on("three", "{name: mpi, ranks: 3}");
  EXPECT_FALSE(three.empty());
  EXPECT_EQ(go_on("threads", "{name: virtual, ranks: 3}"), three);
  // The same global batches and candidates, summed in another order.
  go_on("one", "{name: self}");
  for (const char* dir : {"three", "one"})
    EXPECT_NEAR(series(dir, "valid", "ppl").back() / series("whole", "valid", "ppl").back(), 1, 1e-3) << dir;
}

TEST_F(RanksTest, OneErrorForAllRanks) {
  need_mpi();
  if (IsSkipped()) return;
  const Outcome o = run("e", {"comm={name: mpi, ranks: 3}", "train.max_loss=0.01"});
  if (o.code == 2 && o.err.find("no MPI") != std::string::npos) GTEST_SKIP() << o.err;
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_EQ(count_of(o.err, "is above train.max_loss"), 1u) << o.err;
}

// Runs of workers of a parameter server that are killed or receive a signal.

class Workers : public RunTest {
 protected:
  // Small steps, so that a kill can interrupt any part: between steps, in a meeting, in a checkpoint.
  Words words(const std::string& dir, const Words& more) const {
    Words all = command(dir, {"--ranks", "4", "sync.rest.params=.*", "sync.rest.strategy=param_server",
                              "sync.rest.codec.kind=one_bit", "train.ema=0"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(Workers, KilledAtRandomMomentsEndInTheSameBits) {
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_THAT(run_process(words("whole", {}), environment()), Succeeds());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::string expected = model("whole");
  ASSERT_FALSE(expected.empty());

  std::mt19937 random(11);
  std::uniform_real_distribution<double> moment(0, seconds);
  for (int kills = 0; kills < 8; ++kills) {
    const pid_t child = start(words("killed", {"--resume", "auto"}));
    std::this_thread::sleep_for(std::chrono::duration<double>(moment(random)));
    kill(child, SIGKILL);
    const int code = wait_for(child);
    ASSERT_TRUE(code == 0 || code == 128 + SIGKILL) << code;
  }
  ASSERT_THAT(run_process(words("killed", {"--resume", "auto"}), environment()), Succeeds());
  EXPECT_EQ(model("killed"), expected);
}

TEST_F(Workers, SignalsEndThemAtOnceAndLoseNothing) {
  const Words longer{"train.steps=800", "checkpoint.every=800", "train.eval_every=800", "train.log_every=10"};
  ASSERT_THAT(run_process(words("whole", longer), environment()), Succeeds());
  for (const auto& [signal, code] : {std::pair{SIGTERM, 143}, std::pair{SIGINT, 130}}) {
    const std::string dir = "signal" + std::to_string(signal);
    const pid_t child = start(words(dir, longer));
    ASSERT_TRUE(wait_for_records(child, dir));
    kill(child, signal);
    ASSERT_EQ(wait_for(child), code);
    EXPECT_THAT(read_file(folder_ / dir / "status.json"), HasSubstr("\"interrupted\""));
    ASSERT_THAT(run_process(words(dir, joined(longer, {"--resume", path(dir)})), environment()), Succeeds());
    EXPECT_EQ(model(dir, 800), model("whole", 800));
  }
}

}  // namespace
}  // namespace lmx_test
