// `lmx run` with several ranks: threads of one process or processes of their own, the same bits, one voice.
#include <gmock/gmock.h>

#include "comm/mpi_here.h"
#include "run_fixture.h"

namespace lmx_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class RanksTest : public RunTest {
 protected:
  static void need_mpi() {
    if (const std::string why = why_no_mpi(); !why.empty()) GTEST_SKIP() << why;
  }
  static size_t times(const std::string& text, const std::string& part) {
    size_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  }
};

TEST_F(RanksTest, VirtualRanksSayWhatTravelled) {
  const Outcome o = run("v", {"--ranks", "3"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, AllOf(HasSubstr("3 virtual ranks"), HasSubstr("all ranks sent"), HasSubstr("control"),
                           HasSubstr("all_gather")));
  EXPECT_EQ(times(o.out, "valid ppl"), times(o.out, "\nvalid ppl") + times(o.out, "best valid ppl"));
}

TEST_F(RanksTest, ProcessesAndThreadsGiveTheSameBits) {
  need_mpi();
  if (IsSkipped()) return;
  const Outcome threads = run("v", {"--ranks", "3"});
  ASSERT_EQ(threads.code, 0) << threads.err;
  const Outcome processes = run("m", {"comm={name: mpi, ranks: 3}"});
  if (processes.code == 2 && processes.err.find("no MPI") != std::string::npos) GTEST_SKIP() << processes.err;
  ASSERT_EQ(processes.code, 0) << processes.err;
  EXPECT_EQ(model("m"), model("v"));
  EXPECT_EQ(metrics("m"), metrics("v"));
  EXPECT_EQ(times(processes.out, "\nvalid ppl"), 1u) << processes.out;
  EXPECT_EQ(times(processes.err, "vocabulary"), 1u) << processes.err;
}

TEST_F(RanksTest, ASignalToAJobSavesAndAnotherNumberOfRanksGoesOn) {
  need_mpi();
  if (IsSkipped()) return;
  const std::vector<std::string> longer{"train.steps=600", "checkpoint.every=600", "train.eval_every=600",
                                        "train.log_every=10"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), longer.begin(), longer.end());
    return more;
  };
  const Outcome whole = run("whole", with({"comm={name: mpi, ranks: 2}"}));
  if (whole.code == 2 && whole.err.find("no MPI") != std::string::npos) GTEST_SKIP() << whole.err;
  ASSERT_EQ(whole.code, 0) << whole.err;
  const pid_t child = start(command("cut", with({"comm={name: mpi, ranks: 2}"})));
  ASSERT_TRUE(wait_for_records(child, "cut"));
  kill(child, SIGTERM);
  EXPECT_NE(wait_for(child), 0);
  EXPECT_THAT(read_file(folder_ / "cut" / "status.json"), HasSubstr("\"interrupted\""));
  const Outcome rest = run("cut", with({"comm={name: mpi, ranks: 2}", "--resume", path("cut")}));
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(model("cut", 600), model("whole", 600));
}

TEST_F(RanksTest, OneErrorForAllRanks) {
  need_mpi();
  if (IsSkipped()) return;
  const Outcome o = run("e", {"comm={name: mpi, ranks: 3}", "train.max_loss=0.01"});
  if (o.code == 2 && o.err.find("no MPI") != std::string::npos) GTEST_SKIP() << o.err;
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_EQ(times(o.err, "is above train.max_loss"), 1u) << o.err;
}

}  // namespace
}  // namespace lmx_test
