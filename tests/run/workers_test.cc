// Runs of workers of a parameter server that are killed or receive a signal.
#include <gmock/gmock.h>

#include <random>

#include "process/run_fixture.h"

namespace lmx_test {
namespace {

using testing::HasSubstr;

class Workers : public RunTest {
 protected:
  // Small steps, so that a kill can interrupt any part: between steps, in a meeting, in a checkpoint.
  std::vector<std::string> words(const std::string& dir, const std::vector<std::string>& more) const {
    std::vector<std::string> all = command(dir, {"--ranks", "4", "sync.rest.params=.*", "sync.rest.strategy=param_server",
                                                 "sync.rest.codec.kind=one_bit", "train.ema=0"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(Workers, KilledAtRandomMomentsEndInTheSameBits) {
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(run_process(words("whole", {}), environment()).code, 0);
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
  const Outcome o = run_process(words("killed", {"--resume", "auto"}), environment());
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(model("killed"), expected);
}

TEST_F(Workers, SignalsEndThemAtOnceAndLoseNothing) {
  const std::vector<std::string> longer{"train.steps=800", "checkpoint.every=800", "train.eval_every=800",
                                        "train.log_every=10"};
  ASSERT_EQ(run_process(words("whole", longer), environment()).code, 0);
  for (const auto& [signal, code] : {std::pair{SIGTERM, 143}, std::pair{SIGINT, 130}}) {
    const std::string dir = "signal" + std::to_string(signal);
    const pid_t child = start(words(dir, longer));
    ASSERT_TRUE(wait_for_records(child, dir));
    kill(child, signal);
    ASSERT_EQ(wait_for(child), code);
    EXPECT_THAT(read_file(folder_ / dir / "status.json"), HasSubstr("\"interrupted\""));
    std::vector<std::string> again = longer;
    again.insert(again.end(), {"--resume", path(dir)});
    const Outcome o = run_process(words(dir, again), environment());
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(model(dir, 800), model("whole", 800));
  }
}

}  // namespace
}  // namespace lmx_test
