// What points of a sweep use of a machine. Points are killed because memory is exhausted: by the kernel, in a cgroup of
// this test, by Slurm, or by a program that reports it. Points share cores, and become jobs of Slurm.
#include "app/jobs/process.h"
#include "process/sweep_fixture.h"

namespace lmx_test {
namespace {

using lmx::app::jobs::kills_counted;
using lmx::app::jobs::memory_counters;

class SweepMemory : public SweepTest {
 protected:
  std::string executable(const std::string& name, const std::string& script) const {
    fs::create_directory(path("bin"));
    write("bin/" + name, "#!/bin/bash\n" + script);
    fs::permissions(path("bin/" + name), fs::perms::owner_all);
    return path("bin/" + name);
  }
  // The second point's recurrent matrix takes 144 MB; its gradient, moments and EMA take the same size each.
  static Words small_and_large() {
    return {"train.steps=2", "model.projection=0", "model.cells=16,3000,8", "--jobs", "1"};
  }
};

TEST_F(SweepMemory, CountersOfTheOwnGroupComeFirst) {
  EXPECT_THAT(memory_counters("0::/user.slice/a.scope\n"),
              ElementsAre("/sys/fs/cgroup/user.slice/a.scope/memory.events", "/sys/fs/cgroup/memory.events",
                          "/sys/fs/cgroup/memory/memory.oom_control", "/proc/vmstat"));
  EXPECT_THAT(memory_counters("5:cpu,memory:/job:1\n1:cpu:/\n0::/\n"),
              ElementsAre("/sys/fs/cgroup/memory/job:1/memory.oom_control", "/sys/fs/cgroup/memory.events",
                          "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control", "/proc/vmstat"));
  EXPECT_THAT(memory_counters("nonsense\n\n4:memory"), testing::SizeIs(3));
}

TEST_F(SweepMemory, ReadsAllFormsOfACounter) {
  write("memory.events", "low 0\nhigh 3\nmax 17\noom 5\noom_kill 4\noom_group_kill 0\n");
  write("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  write("old.oom_control", "oom_kill_disable 0\nunder_oom 0\n");  // a kernel without this counter
  write("vmstat", "nr_free_pages 12\noom_kill 9\n");
  EXPECT_EQ(kills_counted({path("memory.events"), path("vmstat")}), 4);
  EXPECT_EQ(kills_counted({path("memory.oom_control")}), 2);
  EXPECT_EQ(kills_counted({path("gone"), path("old.oom_control"), path("vmstat")}), 9);
  EXPECT_EQ(kills_counted({path("gone")}), 0);
}

TEST_F(SweepMemory, KilledByTheKernelIsAnOutcome) {
  const bool first = fs::exists("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  const std::string group =
      std::string(first ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup") + "/lmx_test_" + std::to_string(getpid());
  std::error_code error;
  if (!fs::create_directory(group, error)) GTEST_SKIP() << "cgroups cannot be made here: " << error.message();
  const std::string limit = group + (first ? "/memory.limit_in_bytes" : "/memory.max");
  std::ofstream(limit) << (400 << 20);
  if (!fs::exists(limit)) {
    fs::remove(group, error);
    GTEST_SKIP() << "cgroups here do not limit memory";
  }
  std::ofstream(group + "/memory.swap.max") << 0;
  Words words{"bash", "-c", "echo $$ > \"$0\" && exec \"$@\"", group + "/cgroup.procs"};
  const Words sweep = sweep_words("out", small_and_large());
  words.insert(words.end(), sweep.begin(), sweep.end());
  const Outcome o = run_process(words, environment());
  fs::remove(group, error);
  EXPECT_THAT(o, Succeeds());
  EXPECT_EQ(count_ends("out", "done"), 2u) << o.err;
  EXPECT_EQ(count_ends("out", "out_of_memory"), 1u) << o.out;
  for (const auto& [id, event] : ends("out")) {
    if (event["outcome"] == "out_of_memory") {
      EXPECT_EQ(event["reason"], "killed for lack of memory");
    }
  }
}

// sbatch accepts the array and runs nothing; scontrol reports the state of its tasks.
TEST_F(SweepMemory, SlurmsStateIsAnOutcome) {
  executable("sbatch",
             "[ \"$1\" = --version ] && exit 0\nfor last; do :; done\n"
             "echo 137 > \"${last%.sh}.0.exit\"\necho 17\n");
  executable("squeue", "exit 0\n");
  executable("scontrol", "echo \"JobId=17 ArrayJobId=17 JobName=lmx JobState=OUT_OF_MEMORY Reason=OutOfMemory\"\n");
  auto settings = environment();
  settings["PATH"] = path("bin") + ":" + std::getenv("PATH");
  const Outcome o = run_process(sweep_words("out", {"train.steps=2", "seed=1,2", "--launcher", "slurm"}), settings);
  EXPECT_THAT(o, Succeeds());
  EXPECT_EQ(count_ends("out", "out_of_memory"), 2u) << o.out << o.err;  // one left its exit code, one did not
  executable("scontrol", "echo \"JobId=17 JobState=NODE_FAIL Reason=None\"\n");
  EXPECT_THAT(run_process(sweep_words("other", {"train.steps=2", "seed=1,2", "--launcher", "slurm"}), settings),
              Succeeds());
  EXPECT_EQ(count_ends("other", "out_of_memory"), 0u);
  EXPECT_EQ(count_ends("other", "preempted"), 2u);
}

// An array of Slurm on one machine. The tasks outlive the process that watches them, which is killed: they are found
// again by the journal, and none is submitted twice. Slurm holds the last task for some time.
TEST_F(SweepMemory, AnArrayIsFoundAgain) {
  fs::create_directory(path("queue"));
  executable("sbatch", R"sh([ "$1" = --version ] && exit 0
for word; do case "$word" in --array=0-*) last=${word#--array=0-} ;; --job-name=*) name=${word#*=} ;; esac; done
echo "$name" >> "$QUEUE/submitted"
for task in $(seq 0 "${last%\%*}"); do
  touch "$QUEUE/$task"
  (until [ -e "$QUEUE/release" ]; do sleep 0.05; done
   SLURM_ARRAY_TASK_ID=$task bash "$word"; rm "$QUEUE/$task") > /dev/null 2>&1 < /dev/null &
done
echo 17
)sh");
  executable("squeue", R"sh(case " $* " in *" -j 17 "*) ;; *) exit 0 ;; esac
for task in 0 1 2; do
  [ -e "$QUEUE/$task" ] && echo "17 $task $([ $task = 2 ] && echo JobHeldUser || echo None)"
done
echo asked >> "$QUEUE/asked"
)sh");
  executable("scontrol", "echo \"JobId=17 JobState=COMPLETED Reason=None\"\n");
  auto settings = environment();
  settings["PATH"] = path("bin") + ":" + std::getenv("PATH");
  settings["QUEUE"] = path("queue");
  std::string command = "'" + build_path("/bin/lmx") + "'";
  const Words words = sweep_words("out", {"train.steps=20", "seed=1,2,3", "--launcher", "slurm"});
  for (size_t i = 1; i < words.size(); ++i) command += " '" + words[i] + "'";
  const std::string script = command + R"sh( &
watcher=$!
until [ -e "$QUEUE/asked" ]; do sleep 0.05; done
kill -9 $watcher
wait $watcher
rm "$QUEUE/asked"
(until [ -e "$QUEUE/asked" ]; do sleep 0.05; done; touch "$QUEUE/release") &
exec )sh" + "'" + build_path("/bin/lmx") +
                             "' sweep --resume '" + path("out") + "'";
  const Outcome o = run_process({"timeout", "120", "bash", "-c", script}, settings);
  ASSERT_THAT(o, Succeeds());
  EXPECT_EQ(count_ends("out", "done"), 3u);
  const std::string submitted = read_file(folder_ / "queue/submitted");
  EXPECT_EQ(std::count(submitted.begin(), submitted.end(), '\n'), 1);
  EXPECT_THAT(o.err, Names("point 2-seed=3: Slurm holds job 17_2 (JobHeldUser)", "scontrol release 17_2"));
  for (const auto& file : fs::directory_iterator(path("out/slurm"))) EXPECT_NE(file.path().extension(), ".exit");
  for (const std::string& id : ids("out"))
    EXPECT_EQ(Json::parse(read_file(folder_ / "out/points" / id / "provenance.json"))["starts"].size(), 1u) << id;
}

// Points of a sweep and cells of an experiment that run at the same time use separate cores, or one thread each if
// there are not enough cores. The tests use two cores, on any machine.

class SharedCores : public SweepTest {
 protected:
  SharedCores() {
    fs::create_directory(folder_ / "experiments");
    write("experiments/seeds.yaml",
          "title: T\npaper: P\nscales: {desk: {recipe: ../tiny.yaml, overrides: [train.steps=2]}}\n"
          "axes: {seed: [1, 2, 3]}\noverrides: ['seed=${seed}']\nmeasures: {ppl: {key: ppl}}\n");
  }

  // The threads of each run below `folder`, in the order of their names.
  std::vector<int64_t> threads(Words command, const std::string& folder) const {
    command.insert(command.begin(), {"taskset", "-c", two_cores()});
    auto free = environment();
    free["OMP_NUM_THREADS"] = "";
    EXPECT_THAT(run_process(command, free), Succeeds());
    std::map<std::string, int64_t> all;
    for (const auto& entry : fs::directory_iterator(path(folder))) {
      if (!entry.is_directory()) continue;
      const Json p = Json::parse(read_file(entry.path() / "provenance.json"));
      all[entry.path().filename().string()] = p["starts"].back()["compute"]["threads"];
    }
    std::vector<int64_t> list;
    for (const auto& [id, count] : all) list.push_back(count);
    return list;
  }
  std::vector<int64_t> of_sweep(const std::string& out, const std::string& seeds, const std::string& jobs,
                                const std::string& asked = "0") const {
    return threads(sweep_words(out, {"train.steps=2", "seed=" + seeds, "--jobs", jobs, "threads=" + asked}),
                   out + "/points");
  }
  std::vector<int64_t> of_experiment(const std::string& out, const Words& cells, const std::string& jobs,
                                     const std::string& asked = "0") const {
    Words command{
        build_path("/bin/lmx"), "experiment", "run", path("experiments/seeds.yaml"), "--out", path(out), "--jobs", jobs,
        "threads=" + asked};
    for (const std::string& cell : cells) command.insert(command.end(), {"--only", cell});
    return threads(command, out + "/cells");
  }
};

TEST_F(SharedCores, OfPoints) {
  if (two_cores().empty()) GTEST_SKIP() << "needs two cores and taskset (Debian: util-linux)";
  EXPECT_THAT(of_sweep("one", "1,2", "1"), ElementsAre(2, 2));
  EXPECT_THAT(of_sweep("two", "1,2", "2"), ElementsAre(1, 1));
  EXPECT_THAT(of_sweep("many", "1,2,3", "3"), ElementsAre(1, 1, 1));
  EXPECT_THAT(of_sweep("few", "1,2", "9"), ElementsAre(1, 1));
  EXPECT_THAT(of_sweep("asked", "1,2", "2", "2"), ElementsAre(2, 2));
}

TEST_F(SharedCores, OfCells) {
  if (two_cores().empty()) GTEST_SKIP() << "needs two cores and taskset (Debian: util-linux)";
  EXPECT_THAT(of_experiment("one", {"1", "2"}, "1"), ElementsAre(2, 2));
  EXPECT_THAT(of_experiment("two", {"1", "2"}, "2"), ElementsAre(1, 1));
  EXPECT_THAT(of_experiment("many", {"*"}, "3"), ElementsAre(1, 1, 1));
  EXPECT_THAT(of_experiment("alone", {"2"}, "8"), ElementsAre(2));  // the only cell gets both cores
  EXPECT_THAT(of_experiment("asked", {"*"}, "2", "2"), ElementsAre(2, 2, 2));
}

// lmx sweep --launcher slurm, on a Slurm of one node that runs as long as the test.

class SlurmSweep : public SweepTest {
 protected:
  // Runs a script in the cluster, with the variables $LMX, $RECIPE and $OUT.
  Outcome in_cluster(const std::string& script) const {
    auto settings = environment();
    settings["LMX"] = build_path("/bin/lmx");
    settings["RECIPE"] = path("tiny.yaml");
    settings["OUT"] = path("out");
    return run_process({"timeout", "300", "bash", source_path("/tests/process/slurm_node.sh"), "bash", "-c", script},
                       settings);
  }
  static constexpr int kNoSlurm = 77;
};

TEST_F(SlurmSweep, AnArrayThatOutlivesItsWatcher) {
  const Outcome o = in_cluster(R"sh(
    "$LMX" sweep "$RECIPE" --out "$OUT" train.steps=400 seed=1,2,3 --launcher slurm --jobs 2 &
    sweep=$!
    until grep -q '"submitted"' "$OUT/journal.jsonl" &&
      ls "$OUT"/points/*/metrics.jsonl; do sleep 0.1; done > /dev/null 2>&1
    kill -9 $sweep
    wait $sweep
    "$LMX" sweep --resume "$OUT" --launcher slurm
  )sh");
  if (o.code == kNoSlurm) GTEST_SKIP() << o.err;
  ASSERT_THAT(o, Succeeds());
  EXPECT_EQ(count_ends("out", "done"), 3u);
  int submissions = 0;
  for (const Json& event : events("out")) submissions += event["event"] == "submitted";
  EXPECT_EQ(submissions, 1);
  for (const std::string& id : ids("out")) {
    const Json starts = Json::parse(read_file(folder_ / "out/points" / id / "provenance.json"))["starts"];
    EXPECT_EQ(starts.size(), 1u) << id;
  }
  EXPECT_THAT(o.out, Names("seed", "done"));
  EXPECT_TRUE(fs::exists(path("out/table.csv")));
}

TEST_F(SlurmSweep, OutcomesAndWhatIsCancelled) {
  const Outcome o = in_cluster(R"sh(
    "$LMX" sweep "$RECIPE" --out "$OUT" train.steps=8000,20 train.max_loss=0,0.01 --launcher slurm --slurm=--time=10 &
    sweep=$!
    until grep -q '"step"' "$OUT"/points/0-*/metrics.jsonl 2> /dev/null; do sleep 0.1; done
    scancel -n "$(squeue -h -o %j | head -n 1)"
    wait $sweep || exit 9
    cp "$OUT/journal.jsonl" "$OUT/before"
    "$LMX" sweep --resume "$OUT" --launcher slurm --retry 1
  )sh");
  if (o.code == kNoSlurm) GTEST_SKIP() << o.err;
  ASSERT_THAT(o, Succeeds());
  EXPECT_THAT(read_file(folder_ / "out/before"), HasSubstr("\"preempted\""));
  EXPECT_EQ(count_ends("out", "done"), 2u);
  EXPECT_EQ(count_ends("out", "diverged"), 2u);
  for (const auto& [id, event] : ends("out")) {
    if (event["outcome"] != "done") continue;
    EXPECT_EQ(event["step"], id[0] == '0' ? 8000 : 20) << id;
  }
}

TEST_F(SlurmSweep, WithoutSlurm) {
  auto settings = environment();
  settings["PATH"] = missing_path();
  EXPECT_THAT(run_process(sweep_words("out", {"seed=1,2", "train.steps=2", "--launcher", "slurm"}), settings),
              Refuses(Names("--launcher slurm", "sbatch"), Not(HasSubstr("terminate"))));
}

}  // namespace
}  // namespace lmx_test
