// lmx sweep --launcher slurm, on a Slurm of one node that runs as long as the test.
#include "names.h"
#include "paths.h"
#include "process/sweep_fixture.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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
  ASSERT_EQ(o.code, 0) << o.err;
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
  ASSERT_EQ(o.code, 0) << o.err;
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
  const Outcome o = run_process(sweep_words("out", {"seed=1,2", "train.steps=2", "--launcher", "slurm"}), settings);
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, AllOf(Names("--launcher slurm", "sbatch"), Not(HasSubstr("terminate"))));
}

}  // namespace
}  // namespace lmx_test
