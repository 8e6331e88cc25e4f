// lmx experiment run --launcher: ranks that are processes, here and as jobs of Slurm.
#include <cmath>

#include "app/jobs/progress.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

constexpr const char* kTimes = R"yaml(title: Times of two numbers of ranks
scales:
  paper: {recipe: ../tiny.yaml, overrides: [comm=virtual]}
axes: {G: [1, 2]}
overrides: ["comm.ranks=${G}"]
measures:
  seconds: {key: train_s, class: hardware, comparable: launched, within: 1e6, paper: {"1": 0.01, "2": 0.01}}
  close: {key: train_s, class: formula, within: 0.1, comparable: launched, paper: {"1": 1e-9}}
checks:
  - {claim: takes time, class: hardware, value: "seconds[G=1]", at_least: -1e6, incomparable: virtual, unless: launched}
  - {claim: takes no time, class: hardware, value: "seconds[G=1]", at_most: -1e6, incomparable: virtual, unless: launched}
)yaml";

// Slurm's commands on one machine: a job is a process whose name is a file of $QUEUE. Its ranks meet at a port that its
// number determines: a free one below those that the kernel gives to others.
constexpr const char* kSbatch = R"sh(#!/bin/bash
[ "$1" = --version ] && exit 0
script="${@: -1}"
name=$(sed -n 's/^#SBATCH --job-name=//p' "$script")
echo "$name" >> "$QUEUE/submitted"
id=$((100000 + $$ % 12768))
while (: < "/dev/tcp/127.0.0.1/$((20000 + id % 20000))") 2> /dev/null; do id=$((id + 1)); done
echo "$id" > "$QUEUE/$name.job"
(SLURM_JOB_ID=$id SLURM_JOB_NODELIST=localhost bash "$script"; rm "$QUEUE/$name.job") > /dev/null 2>&1 < /dev/null &
echo "$id"
)sh";
constexpr const char* kSqueue = R"sh(#!/bin/bash
last="${@: -1}"
case " $* " in
*" --name "*) cat "$QUEUE/$last.job" 2> /dev/null ;;
*)
  for id in $(cat "$QUEUE"/*.job 2> /dev/null); do
    case ",$last," in *",$id,"*) echo "$id N/A $(cat "$QUEUE/reason" 2> /dev/null)" ;; esac
  done
  ;;
esac
echo asked >> "$QUEUE/asked"
)sh";
// Waits, at most a minute, until squeue has been asked so many times more.
constexpr const char* kUntilAskedAgain = R"sh(until_asked_again() {
  local times=$(($(wc -l < "$QUEUE/asked") + $1))
  for _ in {1..600}; do
    [ "$(wc -l < "$QUEUE/asked")" -ge "$times" ] && break
    sleep 0.1
  done
}
)sh";
constexpr const char* kScontrol = "#!/bin/bash\n[ \"$2\" = hostnames ] && echo \"$3\"\nexit 0\n";
// Starts the ranks as srun does.
constexpr const char* kSrun = R"sh(#!/bin/bash
while [ "$1" != -n ]; do shift; done
n=$2
shift 2
[ "$1" = -c ] && shift 2
pids=()
for ((i = 0; i < n; i++)); do
  SLURM_STEP_ID=0 SLURM_PROCID=$i SLURM_NTASKS=$n SLURM_LOCALID=$i SLURM_STEP_TASKS_PER_NODE=$n SLURM_STEP_NUM_TASKS=$n "$@" &
  pids+=($!)
done
code=0
for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
exit $code
)sh";

class LaunchedExperiment : public RunTest {
 protected:
  LaunchedExperiment() {
    fs::create_directories(folder_ / "experiments");
    fs::create_directories(folder_ / "bin");
    fs::create_directories(folder_ / "queue");
    write("tiny.yaml", std::string("defaults: [comm: virtual, _self_]\n") + kTinyRecipe);
    write("experiments/times.yaml", kTimes);
  }
  Words words(const std::string& command, Words more) const {
    more.insert(more.begin(),
                {build_path("/bin/lmx"), "experiment", command, path("experiments/times.yaml"), "--out", path("out")});
    return more;
  }
  Outcome experiment(const Words& more) const { return run_process(words("run", more), environment()); }
  // Replaces a passage of the experiment's file.
  void change(const std::string& from, const std::string& to) const {
    std::string text = read_file(folder_ / "experiments/times.yaml");
    ASSERT_NE(text.find(from), std::string::npos) << from;
    write("experiments/times.yaml", text.replace(text.find(from), from.size(), to));
  }
  void keep_one_cell() const {
    change("[1, 2]", "[1]");
    change(", \"2\": 0.01", "");
  }
  Json results() const { return Json::parse(read_file(folder_ / "out/results.json")); }
  static std::string verdict(const Json& results, const std::string& claim) {
    for (const Json& v : results["verdicts"])
      if (v["claim"].get<std::string>().starts_with(claim)) return v["verdict"];
    return "no claim " + claim;
  }
  // The times count. The spread of a single run is not known, so that its claims are undecided.
  void expect_judged(bool several_runs = false) const {
    const Json r = results();
    EXPECT_EQ(verdict(r, "takes time"), several_runs ? "reproduced" : "undecided");
    EXPECT_EQ(verdict(r, "takes no time"), several_runs ? "refuted" : "undecided");
    EXPECT_EQ(verdict(r, "seconds: "), several_runs ? "reproduced" : "undecided");
    // The class of `close` says that it does not depend on chance, so one run is enough.
    if (!several_runs) {
      EXPECT_EQ(verdict(r, "close: "), "refuted");
    }
    for (const Json& c : r["comparisons"]) EXPECT_EQ(c["class"], "measured");
  }
  std::map<std::string, std::string> with_fake_slurm() const {
    for (const auto& [name, text] :
         {std::pair{"sbatch", kSbatch}, {"squeue", kSqueue}, {"scontrol", kScontrol}, {"srun", kSrun}}) {
      write(std::string("bin/") + name, text);
      fs::permissions(folder_ / "bin" / name, fs::perms::owner_all);
    }
    auto settings = environment();
    settings["PATH"] = path("bin") + ":" + std::getenv("PATH");
    settings["QUEUE"] = path("queue");
    return settings;
  }
  static constexpr int kNoSlurm = 77;
};

TEST_F(LaunchedExperiment, VirtualRanksHaveNoComparableTimes) {
  ASSERT_THAT(experiment({"train.steps=10"}), Succeeds());
  const Json r = results();
  EXPECT_EQ(verdict(r, "takes time"), "not comparable");
  EXPECT_EQ(verdict(r, "seconds: "), "not comparable");
  EXPECT_EQ(r["comparisons"][1]["class"], "virtual ranks");
  EXPECT_EQ(r["comparisons"][1]["verdict"], "not comparable");
  EXPECT_FALSE(r["cells"][1]["measured"].contains("seconds")) << "times of virtual ranks mean nothing";
  EXPECT_TRUE(r["cells"][0]["measured"].contains("seconds"));
  EXPECT_THAT(read_file(folder_ / "out/table.md"), HasSubstr("| virtual ranks |"));
  EXPECT_THAT(read_file(folder_ / "out/cells/2.yaml"), HasSubstr("name: virtual"));
}

TEST_F(LaunchedExperiment, RanksHereAreProcesses) {
  EXPECT_THAT(experiment({"--launcher", "local"}), Refuses("times.yaml:3:", "cell 2", "threads", "comm=gloo"));
  if (!LMX_HAS_GLOO) GTEST_SKIP() << "this build has no Gloo";
  ASSERT_THAT(experiment({"--launcher", "local", "comm=gloo", "train.steps=10"}), Succeeds());
  EXPECT_THAT(read_file(folder_ / "out/cells/2.yaml"), HasSubstr("name: gloo"));
  expect_judged();
  fs::remove_all(folder_ / "out");
  change("axes: {G: [1, 2]}", "axes: {G: [1, 2], seed: [11, 12]}\naverage: [seed]");
  change("\"comm.ranks=${G}\"", "\"comm.ranks=${G}\", \"seed=${seed}\"");
  ASSERT_THAT(experiment({"--launcher", "local", "comm=gloo", "train.steps=10"}), Succeeds());
  expect_judged(true);
}

TEST_F(LaunchedExperiment, VirtualRanksOfAnAxisValueAreLeftOut) {
  change("overrides: [comm=virtual]}", "overrides: []}");
  write("tiny.yaml", std::string("defaults: [comm: self, _self_]\n") + kTinyRecipe);
  change("axes: {G: [1, 2]}", "axes: {G: {1: [comm.ranks=1], 2: [comm=virtual, comm.ranks=2]}}");
  change("overrides: [\"comm.ranks=${G}\"]\n", "");
  const Words here{"train.steps=10"};
  ASSERT_THAT(experiment(here), Succeeds());
  EXPECT_THAT(read_file(folder_ / "out/cells/2.yaml"), HasSubstr("name: virtual"));
  fs::remove_all(folder_ / "out");
  if (LMX_HAS_GLOO) {
    ASSERT_THAT(experiment({"--launcher", "local", "comm=gloo", "train.steps=10"}), Succeeds());
    EXPECT_THAT(read_file(folder_ / "out/cells/2.yaml"), HasSubstr("name: gloo"));
  }
  // Another way to write it cannot be left out, and its place is named.
  change("2: [comm=virtual, comm.ranks=2]", "2: [comm.name=virtual, comm.ranks=2]");
  EXPECT_THAT(experiment({"--launcher", "local"}),
              Refuses("times.yaml:4:", "cell 2", "'comm.name=virtual' makes them threads", "comm=gloo"));
  EXPECT_THAT(experiment({"--launcher", "local", "comm=virtual"}),
              Refuses("command line", "'comm=virtual' makes them threads"));
}

// The process that watches the jobs is killed; the same command finds them again.
TEST_F(LaunchedExperiment, JobsOutliveTheCommand) {
  if (!LMX_HAS_GLOO) GTEST_SKIP() << "this build has no Gloo";
  if (on_path("openssl").empty()) GTEST_SKIP() << "there is no openssl, which makes a job's secret";
  auto settings = with_fake_slurm();
  settings["LMX"] = build_path("/bin/lmx");
  settings["FILE"] = path("experiments/times.yaml");
  settings["OUT"] = path("out");
  const std::string script = R"sh(
    run() { exec "$LMX" experiment run "$FILE" --out "$OUT" --launcher slurm --slurm=--nodes=3 comm=gloo train.steps=500; }
    run &
    watcher=$!
    until [ "$(wc -l < "$QUEUE/submitted")" = 2 ]; do sleep 0.05; done 2> /dev/null
    kill -9 $watcher
    wait $watcher
    cp "$OUT/slurm/2.sh" "$OUT/script"
    (run)
  )sh";
  ASSERT_THAT(run_process({"timeout", "300", "bash", "-c", script}, settings), Succeeds());
  const std::string submitted = read_file(folder_ / "queue/submitted");
  EXPECT_EQ(std::count(submitted.begin(), submitted.end(), '\n'), 2);
  EXPECT_THAT(read_file(folder_ / "out/script"),
              Names("#SBATCH --ntasks=2\n", "#SBATCH --requeue\n", "#SBATCH --signal=USR1@120\n", "#SBATCH --nodes=3\n",
                    "srun --kill-on-bad-exit=1 -n 2 -c ", "--resume auto", "scontrol requeue", "LMX_JOB_SECRET"));
  expect_judged();
  for (const auto& file : fs::directory_iterator(folder_ / "out/slurm")) EXPECT_NE(file.path().extension(), ".exit");
}

// A job that fails is submitted again by the next command, and only then.
TEST_F(LaunchedExperiment, AFailedJobIsSubmittedAgain) {
  auto settings = with_fake_slurm();
  write("bin/srun", "#!/bin/bash\necho 'error: no such node' >&2\nexit 5\n");
  const auto again = words("run", {"--launcher", "slurm", "--only", "1", "comm=self", "train.steps=10"});
  keep_one_cell();
  const Outcome failed = run_process(again, settings);
  EXPECT_EQ(failed.code, 1) << failed.out;
  EXPECT_THAT(failed.err, Names("1: failed: exit code 5: ", "no such node"));
  write("bin/srun", kSrun);
  EXPECT_THAT(run_process(again, settings), Succeeds());
  const std::string submitted = read_file(folder_ / "queue/submitted");
  EXPECT_EQ(std::count(submitted.begin(), submitted.end(), '\n'), 2);
}

// A node fails: the ranks end with an error, which the script records, and Slurm queues the job again.
TEST_F(LaunchedExperiment, AFailureOfAJobThatIsQueuedAgainDoesNotCount) {
  auto settings = with_fake_slurm();
  write("bin/sbatch", std::string("#!/bin/bash\n") + kUntilAskedAgain + R"sh([ "$1" = --version ] && exit 0
script="${@: -1}"
name=$(sed -n 's/^#SBATCH --job-name=//p' "$script")
echo "$name" >> "$QUEUE/submitted"
echo $$ > "$QUEUE/$name.job"
export SLURM_JOB_ID=$$ SLURM_JOB_NODELIST=localhost
(FAIL=1 bash "$script"; until_asked_again 2; bash "$script"; rm "$QUEUE/$name.job") > /dev/null 2>&1 < /dev/null &
echo $$
)sh");
  write("bin/srun", std::string("#!/bin/bash\n[ -z \"$FAIL\" ] || exit 1\n") + kSrun);
  keep_one_cell();
  EXPECT_THAT(run_process(words("run", {"--launcher", "slurm", "comm=self", "train.steps=10"}), settings), Succeeds());
  const std::string submitted = read_file(folder_ / "queue/submitted");
  EXPECT_EQ(std::count(submitted.begin(), submitted.end(), '\n'), 1);
}

// A job that Slurm holds would wait without a message.
TEST_F(LaunchedExperiment, AHeldJobIsReportedOnce) {
  auto settings = with_fake_slurm();
  write("queue/reason", "JobHeldAdmin");
  write("bin/srun", std::string("#!/bin/bash\n") + kUntilAskedAgain + "until_asked_again 2\n" + kSrun);
  keep_one_cell();
  const Outcome o = run_process(words("run", {"--launcher", "slurm", "comm=self", "train.steps=10"}), settings);
  EXPECT_THAT(o, Warns("cell 1: Slurm holds job", "JobHeldAdmin", "scontrol release"));
  EXPECT_EQ(o.err.find("Slurm holds"), o.err.rfind("Slurm holds"));
}

// The run's own message comes before those of srun below it.
TEST_F(LaunchedExperiment, TheMessageIsThatOfTheRun) {
  auto settings = with_fake_slurm();
  write("bin/srun", R"sh(#!/bin/bash
echo 'error: rank 1 of 2 has ended' >&2
echo 'srun: error: node1: task 1: Exited with exit code 1' >&2
echo 'slurmstepd-node0: error: *** STEP 1.0 CANCELLED ***' >&2
exit 1
)sh");
  keep_one_cell();
  EXPECT_THAT(run_process(words("run", {"--launcher", "slurm", "comm=self", "train.steps=10"}), settings),
              Fails(Names("1: failed: exit code 1: rank 1 of 2 has ended"), Not(HasSubstr("CANCELLED"))));
}

TEST_F(LaunchedExperiment, OnARealSlurm) {
  if (!LMX_HAS_GLOO) GTEST_SKIP() << "this build has no Gloo";
  auto settings = environment();
  settings["LMX"] = build_path("/bin/lmx");
  settings["FILE"] = path("experiments/times.yaml");
  settings["OUT"] = path("out");
  const std::string script =
      R"sh("$LMX" experiment run "$FILE" --out "$OUT" --launcher slurm comm=gloo train.steps=20)sh";
  const Outcome o = run_process(
      {"timeout", "300", "bash", source_path("/tests/process/slurm_node.sh"), "bash", "-c", script}, settings);
  if (o.code == kNoSlurm) GTEST_SKIP() << o.err;
  ASSERT_THAT(o, Succeeds());
  expect_judged();
  EXPECT_THAT(read_file(folder_ / "out/cells/2.yaml"), HasSubstr("name: gloo"));
}

TEST_F(LaunchedExperiment, OptionsThatHaveNoEffectAreRefused) {
  EXPECT_THAT(experiment({"--slurm=--nodes=2"}), Refuses("--slurm=--nodes=2", "--launcher slurm"));
  auto settings = environment();
  settings["PATH"] = missing_path();
  EXPECT_THAT(run_process(words("run", {"--launcher", "slurm", "comm=gloo"}), settings),
              Refuses("--launcher slurm", "sbatch"));
}

// --check: the exit code of a CI.
TEST_F(LaunchedExperiment, CheckHasAnExitCode) {
  const Outcome nothing = run_process(words("show", {"--check"}), environment());
  EXPECT_EQ(nothing.code, 3);
  EXPECT_THAT(nothing.err, HasSubstr("nothing has been judged"));
  if (!LMX_HAS_GLOO) GTEST_SKIP() << "this build has no Gloo";
  const Words launched{"--launcher", "local", "comm=gloo", "train.steps=10", "--check"};
  const Outcome outside = experiment(launched);
  EXPECT_EQ(outside.code, 3) << outside.err;
  EXPECT_THAT(outside.err, Names("outside the tolerance", "close of cell 1", "10 % allowed"));
  EXPECT_THAT(outside.err, Not(HasSubstr("seconds of cell")));
  std::string text = kTimes;
  text.replace(text.find("paper: {\"1\": 1e-9}"), 18, "only: {G: 1}");
  write("experiments/times.yaml", text);
  EXPECT_THAT(run_process(words("show", launched), environment()), Succeeds());
}

// The progress of an experiment or a sweep, from the records of its runs.

using lmx::app::jobs::Progress;

class ExperimentProgress : public RunTest {
 protected:
  Progress::Job cell(const std::string& id, const std::string& recipe) {
    std::filesystem::create_directory(folder_ / id);
    return {id, path(id), lmx::app::jobs::length_of(lmx::parse_yaml(recipe, id))};
  }
  void record(const Progress::Job& job, const std::string& line) { write(job.id + "/metrics.jsonl", line + "\n"); }
};

// An epoch is the same work for every batch size.
TEST_F(ExperimentProgress, EpochsCountByTheirText) {
  const Progress::Job small = cell("16", "batch: {global: 16}\ntrain: {steps: 0, epochs: 1}\n"),
                      large = cell("256", "batch: {global: 256}\ntrain: {steps: 0, epochs: 1}\n"),
                      half = cell("half",
                                  "batch: {global: 16}\ntrain: {steps: 0, epochs: 1}\ndata: {train_fraction: 0.5}\n");
  Progress p({small, large, half}, {"cell"});
  EXPECT_TRUE(std::isnan(p.done_part()));
  p.started(small.id);
  record(small, R"({"step":10,"epoch":0.1})");
  EXPECT_NEAR(p.done_part(), 0.1 / 2.5, 1e-12);
  p.ended(small.id, {.outcome = "done", .ended = true});
  p.started(half.id);
  record(half, R"({"step":10,"epoch":0.2})");
  EXPECT_NEAR(p.done_part(), 1.1 / 2.5, 1e-12);
}

// A part of the text that was read first determines the length of the whole text.
TEST_F(ExperimentProgress, APartTellsOfTheWhole) {
  const Progress::Job half = cell("half",
                                  "batch: {global: 8}\ntrain: {steps: 0, epochs: 1}\ndata: {train_fraction: 0.5}\n"),
                      whole = cell("whole", "batch: {global: 8}\ntrain: {steps: 0, epochs: 1}\n"),
                      counted = cell("counted", "batch: {global: 8}\ntrain: {steps: 100, epochs: 1}\n");
  Progress p({half, whole, counted}, {"cell"});
  p.started(half.id);
  record(half, R"({"step":40,"epoch":0.4})");  // 100 updates per epoch, 200 for the whole text
  EXPECT_NEAR(p.done_part(), 40.0 / (100 + 200 + 100), 1e-12);
  record(counted, R"({"step":100})");
  EXPECT_EQ(Progress({counted}, {"cell"}).done_part(), 1);
}

TEST_F(ExperimentProgress, UpdatesCountByTheirBatches) {
  const Progress::Job small = cell("1", "batch: {global: 1}\ntrain: {steps: 100, epochs: 1}\n"),
                      large = cell("3", "batch: {global: 3}\ntrain: {steps: 100, epochs: 1}\n");
  record(small, R"({"step":50})");  // before this experiment started
  Progress p({small, large}, {"cell"});
  EXPECT_EQ(p.done_part(), 0);
  p.started(large.id);
  record(large, R"({"step":20})");
  EXPECT_NEAR(p.done_part(), 60.0 / 350, 1e-12);
}

}  // namespace

}  // namespace lmx_test
