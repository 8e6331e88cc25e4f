// Workers of a parameter server that are processes. Their order is not planned, but threads that repeat it must compute
// the same values.
#include <cstring>

#include "process/emulated.h"
#include "runfiles/checkpoint.h"

#include "comm/mpi_here.h"
#include "process/run_fixture.h"
#include "same_tensors.h"

namespace lmx_test {
namespace {

class MpiWorkers : public RunTest {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_mpi(); !why.empty()) GTEST_SKIP() << why;
    const Outcome o = run_lmx({"plugins", "info", "mpi"}, environment());
    if (o.out.find("heartbeat_s") == std::string::npos) GTEST_SKIP() << "this build has no MPI";
  }
  static Words workers(const Words& more = {}, int steps = 60) {
    const std::string n = std::to_string(steps);
    return joined({"sync.rest.params=.*", "sync.rest.strategy=param_server", "sync.rest.codec.kind=one_bit",
                   "train.ema=0", "train.steps=" + n, "train.eval_every=20", "checkpoint.keep_last=20"},
                  more);
  }
  static Words processes(const Words& more = {}) { return joined({"comm={name: mpi, ranks: 3}"}, more); }
  static Words threads(const Words& more = {}) { return joined({"--ranks", "3"}, more); }
  Outcome expect_run(const std::string& dir, const Words& words) const {
    const Outcome o = run(dir, words);
    EXPECT_EQ(o.code, 0) << dir << ": " << o.err;
    return o;
  }
  std::string recorded(const std::string& name) const { return "sync.rest.schedule=" + path(name); }
  std::string replayed(const std::string& name) const { return "sync.rest.replay=" + path(name); }

  // The training records, and the bytes that each rank has sent and received for its rule.
  std::string curve(const std::string& dir) const {
    std::string text;
    for (const auto& record : records(dir)) {
      const bool rank = record["split"] == "rank";
      for (const auto& [key, value] : record.items()) {
        const bool bytes = key.starts_with("comm/rest/") && key.ends_with("_bytes");
        const bool other = !rank && !key.starts_with("comm_") && !key.ends_with("_s");
        if (bytes || other || key == "rank" || key == "step") text += key + "=" + value.dump() + " ";
      }
      text += "\n";
    }
    return text;
  }
  // Removes checkpoints after `step`, as if the run had been killed.
  void cut(const std::string& from, const std::string& to, int64_t step) const {
    fs::copy(path(from), path(to), fs::copy_options::recursive);
    for (const auto& entry : fs::directory_iterator(path(to) + "/checkpoints"))
      if (std::stoll(entry.path().filename().string().substr(5)) > step) fs::remove_all(entry.path());
  }
  // Compares the model and the state of each worker and shard, except the clock. The clock of processes is that of a
  // simulation which they do not follow; threads could continue from it.
  void expect_same_end(const std::string& dir, const std::string& other, int64_t step) const {
    const auto file = [&](const std::string& of, const char* name) {
      return folder_ / of / "checkpoints" / ("step-" + std::to_string(step)) / (std::string(name) + ".safetensors");
    };
    EXPECT_FALSE(read_file(file(dir, "model")).empty());
    EXPECT_TRUE(read_file(file(dir, "model")) == read_file(file(other, "model"))) << dir << " and " << other;
    for (const char* name : {"rank-0", "rank-1", "rank-2"}) {
      auto a = lmx::load_safetensors(file(dir, name), lmx::Allocator::cpu()),
           b = lmx::load_safetensors(file(other, name), lmx::Allocator::cpu());
      EXPECT_EQ(a.erase("worker"), b.erase("worker"));
      expect_same(a, b, name);
    }
  }
  // The process of a rank of the run in `dir`; -1 if it does not exist.
  pid_t process_of(const std::string& dir, int rank) const {
    const std::string words = std::string("run.dir=") + path(dir),
                      name = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank);
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string text = read_file(entry.path() / "cmdline");
      if (text.find(words) == std::string::npos || text.find("mpirun") != std::string::npos) continue;
      const std::string environment = '\0' + read_file(entry.path() / "environ");
      if (environment.find('\0' + name + '\0') != std::string::npos) return std::stoi(entry.path().filename().string());
    }
    return -1;
  }
};

TEST_F(MpiWorkers, AnOrderOfProcessesRepeatsInThreads) {
  const Outcome o = expect_run("m", processes(workers({recorded("order"), "sync.rest.delay.mean=2"})));
  EXPECT_THAT(o.err, Names("3 processes (MPI", "3 workers", "delay", "virtual ranks", "staleness", "turn"));
  EXPECT_EQ(count_of(o.out, "\nvalid ppl"), 1u) << o.out;
  expect_run("v", threads(workers({replayed("order"), recorded("again")})));
  EXPECT_EQ(read_file(folder_ / "again"), read_file(folder_ / "order"));
  expect_same_end("v", "m", 60);
  EXPECT_EQ(curve("v"), curve("m"));
  // Both processes and threads continue from a checkpoint of processes.
  cut("m", "v2", 20);
  cut("m", "m2", 40);
  const Words as_before = workers({recorded("order"), "sync.rest.delay.mean=2"});
  Outcome rest = run("v2", threads(joined(as_before, {"--resume", path("v2"), "train.steps=25"})));
  EXPECT_THAT(rest, Succeeds());
  rest = run("m2", processes(joined(as_before, {"--resume", path("m2")})));
  EXPECT_THAT(rest, Succeeds());
  // The order before and the order after the resume form one order.
  expect_run("v3", threads(workers({replayed("order"), recorded("again")})));
  expect_same_end("v3", "m2", 60);
}

TEST_F(MpiWorkers, AnOrderOfProcessesThatGlooConnectsRepeatsInThreads) {
  const Outcome o = run("m", workers({"comm={name: gloo, ranks: 3}", recorded("order")}));
  if (o.err.find("no Gloo") != std::string::npos) GTEST_SKIP() << o.err;
  ASSERT_THAT(o, Warns("3 processes (Gloo", "3 workers", "staleness", "turn"));
  expect_run("v", threads(workers({replayed("order"), recorded("again")})));
  EXPECT_EQ(read_file(folder_ / "again"), read_file(folder_ / "order"));
  expect_same_end("v", "m", 60);
  EXPECT_EQ(curve("v"), curve("m"));
}

TEST_F(MpiWorkers, RecordsTellHowLongAWorkerWaited) {
  expect_run("m", processes(workers()));
  double train = 0, rank = 0;
  for (const auto& record : records("m")) {
    if (record["split"] == "train") {
      EXPECT_EQ(record["comm_s"], record["comm_exposed_s"]);
      train += record["comm_s"].get<double>();
    }
    if (record["split"] != "rank" || record["rank"] != 0) continue;
    for (const char* key : {"comm/rest/pull/s", "comm/rest/push/s", "comm/control/turn/s"})
      rank += record.value(key, 0.0);
  }
  EXPECT_GT(train, 0);
  EXPECT_NEAR(train, rank, 1e-9);
}

TEST_F(MpiWorkers, AnOrderOfThreadsRepeatsInProcesses) {
  expect_run("v", threads(workers({recorded("order"), "sync.rest.delay.spread=0.9"})));
  const Words replay = workers({replayed("order"), recorded("again")});
  expect_run("m", processes(replay));
  EXPECT_EQ(read_file(folder_ / "again"), read_file(folder_ / "order"));
  expect_same_end("m", "v", 60);
  EXPECT_EQ(curve("m"), curve("v"));
  // A replay continues at its position.
  cut("m", "rest", 30);
  EXPECT_THAT(run("rest", processes(joined(replay, {"--resume", path("rest")}))), Succeeds());
  expect_same_end("rest", "v", 60);
}

// Rows of tables only; rows of two rules; a rank without sequences, which also grants the turns; skipped updates.
TEST_F(MpiWorkers, WhateverTravels) {
  const std::string rule = "strategy: sampled_rows, transport: param_server, codec: {kind: one_bit}";
  const auto both = [&](const std::string& key) {
    const std::string file = ", schedule: " + path(key) + (key == "again" ? ", replay: " + path("order") : "");
    return "sync={tables: {params: 'embedding|softmax', " + rule + file + "}, rest: {params: '.*', " +
           "strategy: param_server" + file + "}}";
  };
  write("tiny.yaml", replaced(kTinyRecipe, "loss: .*", "loss: {name: two_stage_softmax}"));
  const Words common{"batch={global: 2, micro: 1}", "train.ema=0",         "train.steps=30",
                     "train.eval_every=10",         "train.max_loss=2.85", "train.on_divergence=skip"};
  const Outcome o = expect_run("m", processes(joined(common, {both("order")})));
  EXPECT_THAT(o.err, Names("update", "left out"));
  expect_run("v", threads(joined(common, {both("again")})));
  expect_same_end("v", "m", 30);
  EXPECT_EQ(curve("v"), curve("m"));
}

// Shards and replicas on a device; messages pass through the memory of the host.
TEST_F(MpiWorkers, ProcessesAndThreadsAgreeOnADevice) {
  const std::string library = emulated_cuda();
  if (!fs::exists(library)) GTEST_SKIP() << "this build has no emulated device";
  setenv("LMX_CUDA_LIBRARY", library.c_str(), 1);
  for (const std::string codec : {"none", "one_bit"}) {
    SCOPED_TRACE(codec);
    const auto rules = [&](const std::string& order) {
      const std::string more = ", codec: {kind: " + codec + "}, " + order;
      return "sync={tables: {params: 'embedding|softmax', strategy: sampled_rows, transport: param_server" + more +
             "}, rest: {params: '.*', strategy: param_server" + more + "}}";
    };
    const Words common{"train.ema=0", "train.steps=6", "train.eval_every=6", "train.log_every=2", "device=cuda"};
    expect_run("m" + codec, processes(joined(common, {rules("schedule: " + path("order"))})));
    expect_run("v" + codec,
               threads(joined(common, {rules("schedule: " + path("again") + ", replay: " + path("order"))})));
    expect_same_end("v" + codec, "m" + codec, 6);
    EXPECT_EQ(curve("v" + codec), curve("m" + codec));
  }
  unsetenv("LMX_CUDA_LIBRARY");
}

// A server of whole parameters and one of rows, with each codec and number of ranks. Threads that repeat the order of
// processes give the same bits and send the same bytes, which tests/sync compares with the formulas.
class MpiWorkersCodecs : public MpiWorkers, public testing::WithParamInterface<std::tuple<const char*, int>> {};

TEST_P(MpiWorkersCodecs, ProcessesAndThreadsAgree) {
  const auto [codec, ranks] = GetParam();
  const auto rules = [&](const std::string& order) {
    const std::string more = std::string(", codec: {") + codec + "}, " + order;
    return "sync={tables: {params: 'embedding|softmax', strategy: sampled_rows, transport: param_server" + more +
           "}, rest: {params: '.*', strategy: param_server" + more + "}}";
  };
  const std::string n = std::to_string(ranks);
  const Words common{"train.ema=0", "train.steps=12", "train.eval_every=12", "train.log_every=4", "threads=0"};
  expect_run("m", joined(common, {rules("schedule: " + path("order")), "comm={name: mpi, ranks: " + n + "}"}));
  expect_run("v", joined(common, {rules("replay: " + path("order")), "--ranks", n}));
  EXPECT_FALSE(model("m", 12).empty());
  EXPECT_TRUE(model("v", 12) == model("m", 12));
  EXPECT_EQ(curve("v"), curve("m"));
}
INSTANTIATE_TEST_SUITE_P(All, MpiWorkersCodecs,
                         testing::Combine(testing::Values("kind: none", "kind: fp16", "kind: bf16", "kind: one_bit",
                                                          "kind: one_bit, residual: none"),
                                          testing::Values(1, 2, 3, 4, 8)),
                         [](const auto& one) {
                           std::string name;
                           for (const char c : std::string(std::get<0>(one.param)).substr(6))
                             if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') name += c;
                           return name + "_" + std::to_string(std::get<1>(one.param));
                         });

TEST_F(MpiWorkers, ASignalSavesAndTheRunGoesOn) {
  const Words longer = processes(workers({recorded("order"), "checkpoint.every=200", "train.eval_every=200"}, 200));
  const pid_t child = start(command("cut", longer));
  ASSERT_TRUE(wait_for_records(child, "cut"));
  kill(child, SIGTERM);
  ASSERT_EQ(wait_for(child), 143);
  EXPECT_THAT(read_file(folder_ / "cut" / "status.json"), HasSubstr("\"interrupted\""));
  ASSERT_THAT(run("cut", joined(longer, {"--resume", path("cut")})), Succeeds());
  expect_run("v", threads(workers(
                      {replayed("order"), recorded("again"), "checkpoint.every=200", "train.eval_every=200"}, 200)));
  expect_same_end("v", "cut", 200);
}

TEST_F(MpiWorkers, AKilledWorkerEndsTheJob) {
  for (const int killed : {1, 0}) {
    const std::string dir = "k" + std::to_string(killed), name = "rank " + std::to_string(killed) + " of 3";
    // start() does not capture stderr.
    Words words{"/bin/sh", "-c", "exec \"$0\" \"$@\" 2>" + path("err")};
    const pid_t child = start(joined(words, command(dir, processes(workers({}, 100000)))));
    ASSERT_TRUE(wait_for_records(child, dir));
    const pid_t worker = process_of(dir, killed);
    ASSERT_GT(worker, 0);
    kill(worker, SIGKILL);
    EXPECT_EQ(wait_for(child), 1);
    const std::string err = read_file(path("err"));
    EXPECT_THAT(err, HasSubstr(name + " on host "));
    EXPECT_EQ(count_of(err, "error:"), 1u) << err;
    // A remaining process writes the status.
    const nlohmann::json status = nlohmann::json::parse(read_file(folder_ / dir / "status.json"));
    EXPECT_EQ(status["state"], "failed");
    EXPECT_GT(status["step"], 0);
    EXPECT_THAT(status["reason"].get<std::string>(), HasSubstr("[mpi] " + name));
  }
}

// A killed mpirun ends its ranks. The process that started it writes the status of the run.
TEST_F(MpiWorkers, AKilledMpirunLeavesNoRunUnderWay) {
  const pid_t child = start(command("m", processes({"train.steps=1000000", "train.eval_every=1000000"})));
  ASSERT_TRUE(wait_for_records(child, "m"));
  std::ifstream children("/proc/" + std::to_string(child) + "/task/" + std::to_string(child) + "/children");
  pid_t mpirun = 0;
  ASSERT_TRUE(children >> mpirun);
  kill(mpirun, SIGKILL);
  EXPECT_EQ(wait_for(child), 1);
  const nlohmann::json status = nlohmann::json::parse(read_file(folder_ / "m" / "status.json"));
  EXPECT_EQ(status["state"], "failed");
  EXPECT_GT(status["step"], 0);
  EXPECT_THAT(status["reason"].get<std::string>(), HasSubstr("mpirun was ended by SIGKILL"));
  EXPECT_EQ(process_of("m", 1), -1);
}

TEST_F(MpiWorkers, ATraceHasARowForEachProcess) {
  expect_run("t", processes({"train.steps=5", "--trace", path("t.json")}));
  std::map<int, int> updates;
  const nlohmann::json trace = nlohmann::json::parse(read_file(path("t.json")));
  for (const auto& e : trace["traceEvents"]) updates[e["pid"]] += e["name"] == "backward";
  EXPECT_EQ(updates.size(), 3u);
  for (const auto& [rank, count] : updates) EXPECT_GE(count, 5) << rank;
}

// All ranks find the error while they make the session.
TEST_F(MpiWorkers, OneMessageForAllRanks) {
  const Outcome o = run("e", processes(workers({"sync.rest.params=nothing"})));
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(count_of(o.err, "error:"), 1u) << o.err;
  EXPECT_EQ(count_of(o.err, "\n"), 1u) << o.err;
  EXPECT_THAT(o.err, Names("'nothing'"));
  EXPECT_FALSE(fs::exists(path("e")));
}

}  // namespace
}  // namespace lmx_test
