// lmx sweep: the points of a sweep, random points, and the check that they still match the recipe.
#include <cmath>
#include <iterator>

#include "names.h"
#include "process/sweep_fixture.h"

namespace lmx_test {
namespace {

using testing::HasSubstr;

using SweepPoints = SweepTest;

// The list shows points in the order in which they were sampled; the grid shows them at their position.
TEST_F(SweepPoints, AGridOfDrawnPoints) {
  const Outcome o = sweep("out", {"train.steps=4", "optimizer.lr=0.001,0.02,0.3", "model.cells=8,16", "--random", "6"});
  ASSERT_EQ(o.code, 0) << o.err;
  std::map<std::string, std::string> listed;
  std::istringstream lines(o.out);
  bool in_grid = false;
  std::vector<std::string> across;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> cells{std::istream_iterator<std::string>(words), {}};
    if (cells.empty()) continue;
    if (line.find("\\ model.cells") != std::string::npos) {
      in_grid = true;
      across = {cells.end() - 2, cells.end()};
    } else if (cells[0].starts_with("0.") && !in_grid) {
      listed[cells[0] + " " + cells[1]] = (line.ends_with("best") ? "*" : "") + cells[2];
    } else if (cells[0].starts_with("0.")) {
      for (size_t i = 0; i < 2; ++i) EXPECT_EQ(cells.at(i + 1), listed[cells[0] + " " + across[i]]) << o.out;
    }
  }
  EXPECT_TRUE(in_grid) << o.out;
  EXPECT_EQ(listed.size(), 6U);
}

TEST_F(SweepPoints, ARecipeThatHasChangedIsTold) {
  ASSERT_EQ(sweep("out", {"train.steps=2", "seed=1,2"}).code, 0);
  std::string text = read_file(folder_ / "tiny.yaml");
  write("tiny.yaml", text.replace(text.find("lr: 0.01"), 8, "lr: 0.02"));
  const Outcome o = sweep("out", {"train.steps=2", "seed=1,2", "--resume", "auto"});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, Names("point 0-seed=1", "--resume " + path("out")));
  EXPECT_EQ(resume("out").code, 0);
  for (const std::vector<std::string>& option : {std::vector<std::string>{"--seeds", "3"},
                                                 {"--random", "7"},
                                                 {"--halving", "eta=3,min=4"},
                                                 {"--config-dir", path("none")}})
    EXPECT_THAT(resume("out", option).err, Names(option[0], "--resume"));
  EXPECT_THAT(resume("out", {"--maximize"}).err, Names("--maximize", "--metric"));
}

// Both may find the folder empty, but only one of them gets it.
TEST_F(SweepPoints, TwoAtOnceInOneFolder) {
  const pid_t one = start(sweep_words("out", {"train.steps=2", "seed=1,2,3,4"})),
              other = start(sweep_words("out", {"train.steps=2", "seed=5,6"}));
  const int a = wait_for(one), b = wait_for(other);
  EXPECT_EQ(std::min(a, b), 0);
  EXPECT_EQ(std::max(a, b), 2);
  EXPECT_EQ(count_ends("out", "done"), ids("out").size());
}

TEST_F(SweepPoints, OneKeyByTwoNames) {
  refused({"+seed=1,2", "--seeds", "2"}, {"seed=...", "seeds"});
  refused({"seed=9", "optimizer.lr=1,2", "--seeds", "2"}, {"seed=9", "seeds"});
  refused({"optimizer.lr=1,2", "++optimizer.lr=5,6"}, {"optimizer.lr=...", "++optimizer.lr=..."});
}

TEST_F(SweepPoints, RandomPointsAreTheSameForASeed) {
  const std::vector<std::string> axes{"optimizer.lr=tag(log,interval(0.0001,0.1))", "model.cells=8,16",
                                      "train.steps=2"};
  const auto points = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = axes;
    all.insert(all.end(), more.begin(), more.end());
    const Outcome o = sweep("none", all);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.out;
  };
  const std::string five = points({"--random", "5", "--dry-run"});
  EXPECT_EQ(points({"--random", "5", "--dry-run"}), five);
  EXPECT_NE(points({"--random", "5", "--random-seed", "1", "--dry-run"}), five);
  EXPECT_THAT(five, HasSubstr("5 points"));
  const Outcome o = sweep("out", {axes[0], axes[1], axes[2], "--random", "3", "--seeds", "4,9"});
  ASSERT_EQ(o.code, 0) << o.err;
  const auto all = plan("out")["points"];
  ASSERT_EQ(all.size(), 6u);
  for (size_t i = 0; i < 6; i += 2) {
    EXPECT_EQ(all[i]["place"][0], all[i + 1]["place"][0]);
    EXPECT_EQ(all[i]["place"][2], "4");
    EXPECT_EQ(all[i + 1]["place"][2], "9");
    const double rate = std::stod(all[i]["place"][0].get<std::string>());
    EXPECT_GE(rate, 0.0001);
    EXPECT_LT(rate, 0.1);
    EXPECT_THAT(five, HasSubstr(all[i]["place"][0].get<std::string>()));  // the first of several values
  }
  refused({"seed=1,2", "--random", "3"}, {"2 different points"});
  refused({"seed=1,2", "--random", "9000000000"}, {"--random 9000000000", "100000 points"});
  refused({"train.steps=range(1,5001)", "clip=1,2,3,4,5,6,7", "--seeds", "3"},
          {"35000 configurations", "3 seeds", "100000 points"});
}

}  // namespace
}  // namespace lmx_test
