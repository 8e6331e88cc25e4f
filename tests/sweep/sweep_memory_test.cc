// Points that are killed because memory is exhausted: by the kernel, in a cgroup of this test, by Slurm, or by a
// program that reports it.
#include "app/points/journal.h"
#include "process/sweep_fixture.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;
using lmx_cli::sweeps::kills_counted;
using lmx_cli::sweeps::memory_counters;
using testing::ElementsAre;
using testing::HasSubstr;

class SweepMemory : public SweepTest {
 protected:
  std::string executable(const std::string& name, const std::string& script) const {
    fs::create_directory(path("bin"));
    write("bin/" + name, "#!/bin/bash\n" + script);
    fs::permissions(path("bin/" + name), fs::perms::owner_all);
    return path("bin/" + name);
  }
  // The second point's recurrent matrix takes 144 MB; its gradient, moments and EMA take the same size each.
  static std::vector<std::string> small_and_large() {
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
  std::vector<std::string> words{"bash", "-c", "echo $$ > \"$0\" && exec \"$@\"", group + "/cgroup.procs"};
  const std::vector<std::string> sweep = sweep_words("out", small_and_large());
  words.insert(words.end(), sweep.begin(), sweep.end());
  const Outcome o = run_process(words, environment());
  fs::remove(group, error);
  EXPECT_EQ(o.code, 0) << o.err;
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
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(count_ends("out", "out_of_memory"), 2u) << o.out << o.err;  // one left its exit code, one did not
  executable("scontrol", "echo \"JobId=17 JobState=NODE_FAIL Reason=None\"\n");
  EXPECT_EQ(run_process(sweep_words("other", {"train.steps=2", "seed=1,2", "--launcher", "slurm"}), settings).code, 0);
  EXPECT_EQ(count_ends("other", "out_of_memory"), 0u);
  EXPECT_EQ(count_ends("other", "preempted"), 2u);
}

}  // namespace
}  // namespace lmx_test
