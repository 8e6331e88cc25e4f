// The inputs of a sweep: errors in a recipe's own `sweep:`, advice on options, cores divided among ranks.
#include <cmath>
#include <iterator>

#include "app/records/half_interval.h"
#include "app/sweep/table.h"
#include "comm/mpi_here.h"
#include "process/sweep_fixture.h"

namespace lmx_test {
namespace {

class SweepRequest : public SweepTest {
 protected:
  void recipe(const std::string& section) const { write("tiny.yaml", std::string(kTinyRecipe) + section); }
  std::string refused(const Words& more = {}) const {
    const Outcome o = sweep("refused", more);
    EXPECT_EQ(o.code, 2) << o.out << o.err;
    EXPECT_FALSE(fs::exists(path("refused")));
    return o.err;
  }
};

// One number of virtual ranks for all points, or an axis of several.
TEST_F(SweepRequest, VirtualRanksAsInARun) {
  recipe("");
  const Outcome one = sweep("one", {"--ranks", "2", "seed=1,2"}), several = sweep("several", {"--ranks", "1,2"});
  ASSERT_THAT(one, Succeeds());
  ASSERT_THAT(several, Succeeds());
  EXPECT_THAT(read_file(folder_ / "one/points/0-seed=1.yaml"), HasSubstr("comm:\n  name: virtual\n  ranks: 2\n"));
  EXPECT_THAT(read_file(folder_ / "one/points/1-seed=2.yaml"), HasSubstr("comm:\n  name: virtual\n  ranks: 2\n"));
  EXPECT_THAT(read_file(folder_ / "several/points/0-ranks=1.yaml"), HasSubstr("comm:\n  name: virtual\n  ranks: 1\n"));
  EXPECT_THAT(read_file(folder_ / "several/points/1-ranks=2.yaml"), HasSubstr("comm:\n  name: virtual\n  ranks: 2\n"));
  EXPECT_THAT(several.out, HasSubstr("ranks"));
  EXPECT_THAT(refused({"--ranks", "2", "comm.ranks=2,4"}), Names("--ranks 2", "'comm.ranks=2'", "leave out one"));
  EXPECT_THAT(refused({"--ranks", "2,2"}), Names("--ranks 2", "twice"));
  EXPECT_THAT(refused({"--ranks", "0"}), Names("--ranks"));
}

// A sweep checks its points one after the other, and says how far it is.
TEST_F(SweepRequest, ProgressWhilePointsAreChecked) {
  recipe("");
  auto often = environment();
  often["LMX_PROGRESS_S"] = "0.0001";
  EXPECT_THAT(run_process(sweep_words("none", {"seed=1,2,3", "--dry-run"}), often), Warns("checked 2 of 3 points"));
}

TEST_F(SweepRequest, ValuesOfTheEnvironmentAreReported) {
  recipe("provenance: {site: '${oc.env:LMX_TEST_SITE}'}\n");
  auto there = environment();
  there["LMX_TEST_SITE"] = "here";
  const Outcome swept = run_process(sweep_words("site", {"seed=1,2"}), there),
                once = run_process(command("once"), there);
  EXPECT_THAT(swept.err, HasSubstr("the files of this sweep contain the values of environment variables: "
                                   "LMX_TEST_SITE (provenance.site)"));
  EXPECT_THAT(once.err, HasSubstr("the files of this run contain the values of environment variables: "
                                  "LMX_TEST_SITE (provenance.site)"));
  EXPECT_THAT(run_process(sweep_words("without", {"seed=1,2", "~provenance"}), there).err,
              Not(HasSubstr("LMX_TEST_SITE")));
}

// `sweep:` is at line 13.
TEST_F(SweepRequest, AMistakeInTheRecipesParamsHasItsPlace) {
  recipe("sweep:\n  params:\n    optimzer.lr: [0.001, 0.01, 0.1]\n    seed: \"1,2\"\n");
  const std::string key = refused();
  EXPECT_THAT(key, Names("error: " + path("tiny.yaml") + ":15:5: ", "optimzer", "'optimizer'?",
                         "\n  15 |     optimzer.lr: [0.001, 0.01, 0.1]\n     |     ^\n"));
  EXPECT_EQ(count_of(key, "unknown key"), 1u) << key;
  recipe("sweep:\n  params:\n    optimizer.lr: [0.001, -1]\n    model.cells: \"8,no\"\n    seed: 1\n");
  const std::string values = refused();
  EXPECT_THAT(values,
              Names("2 mistakes:\n", "optimizer.lr=-1, 2 points: " + path("tiny.yaml") + ":15:27: optimizer.lr: ",
                    path("tiny.yaml") + ":16:18: model.cells: ", "'no'"));
  recipe("sweep:\n  params:\n    train.stps: 5\n    seed: [1, 2]\n");
  EXPECT_THAT(refused(), Names(":15:5:", "train.stps", "'steps'?"));
  recipe("sweep:\n  params:\n    optimizer.betas: \"[0.9,0.98\"\n");
  EXPECT_THAT(refused(), Names(path("tiny.yaml") + ":15:22: sweep.params: ", "'optimizer.betas=[0.9,0.98'", "column 17",
                               "']'", "\n  15 |     optimizer.betas: \"[0.9,0.98\"\n     |                      ^\n"));
  recipe("sweep:\n  params:\n    seed: [1, 1]\n");
  EXPECT_THAT(refused(), Names(path("tiny.yaml") + ":15:5: [sweep] seed", "value 1", "twice"));
  recipe("sweep:\n  params:\n    optimizer.lrr: interval(0.1,0.2)\n  random: 2\n");
  EXPECT_THAT(refused(), Names(":15:5:", "optimizer.lrr", "'lr'?"));
  recipe("sweep:\n  params:\n    stop.when: []\n");
  EXPECT_THAT(refused(), Names(":15:16: sweep.params: stop.when", "[[]]"));
  recipe("sweep:\n  params: {seed: [1, 2]}\n  metric: vald.ppl\n");
  EXPECT_THAT(refused(), Names(path("tiny.yaml") + ":15:11: metric vald.ppl", "'vald'"));
  EXPECT_THAT(refused({"--metric", "vaild.ppl"}), Not(HasSubstr(":15:")));
  std::filesystem::create_directory(folder_ / "size");
  write("size/small.yaml", "# @package _global_\nseed: 3\n");
  recipe("sweep:\n  params:\n    +size: [smal, small]\n");
  EXPECT_THAT(refused(), Names("error: " + path("tiny.yaml") + ":15:5: ", "'small'?"));
  // The axis of the command line replaces that of the recipe.
  recipe("sweep:\n  params:\n    optimizer.lr: [-1, -2]\n");
  EXPECT_THAT(refused({"optimizer.lr=-3,-4"}), AllOf(Names("override 'optimizer.lr=-3'"), Not(HasSubstr(":15:"))));
}

TEST_F(SweepRequest, AValueOfTheWrongShapeIsShownAsItIs) {
  const auto told = [&](const std::string& section) {
    recipe("sweep: {params: {clip: [1, 2]}, " + section + "}\n");
    return refused();
  };
  EXPECT_THAT(told("seeds: {a: 1}"), Names(path("tiny.yaml") + ":13:40: [sweep] seeds", "got '{a:1}'"));
  EXPECT_THAT(told("seeds: [[1, 2], 3]"), Names("got '[[1,2],3]'"));
  EXPECT_THAT(told("seeds: []"), Names("got '[]'"));
  EXPECT_THAT(told("halving: [3, 100]"), Names("eta and min", "got [3,100]"));
  EXPECT_THAT(told("halving: {eta: [3], min: 100}"), Names("eta", "got '[3]'"));
  EXPECT_THAT(told("halving: {eta: 0, min: 100}"), Names("eta is 0"));
}

TEST_F(SweepRequest, ADryRunListsThePointsThatAreRight) {
  const Outcome all = sweep("refused", {"optimizer.lrr=1,2", "--dry-run"});
  EXPECT_EQ(all.code, 2);
  EXPECT_EQ(all.out, "");
  const Outcome some = sweep("refused", {"model.cells=8,0", "--dry-run"});
  EXPECT_EQ(some.code, 2);
  EXPECT_THAT(some.out, testing::ContainsRegex("0-cells=8 +8 +120 +[0-9,]+ +[0-9]+ kB\n1-cells=0 +0 +mistake +- +-\n"));
  EXPECT_THAT(some.err, Names("model.cells", "[1, 1048576]"));
  const Outcome built = sweep("refused", {"model.projection=0,4096", "--dry-run"});
  EXPECT_THAT(built.out, testing::ContainsRegex("1-projection=4096 +4096 +mistake +- +-\n"));
}

TEST_F(SweepRequest, HalvingThatStopsNothingIsWarnedOf) {
  const auto warning = [&](Words more) {
    more.push_back("--dry-run");
    const Outcome o = sweep("refused", more);
    EXPECT_THAT(o, Succeeds());
    return o.err;
  };
  EXPECT_THAT(warning({"model.cells=8,16", "--halving", "min=120"}),
              Names("[sweep] halving", "min is 120", "train.steps 120"));
  EXPECT_THAT(warning({"--seeds", "3", "--halving", "min=10"}), Names("[sweep] halving", "one configuration"));
  EXPECT_EQ(warning({"model.cells=8,16", "--halving", "min=119"}), "");
}

TEST_F(SweepRequest, OptionsOfSlurmNeedSlurm) {
  const auto told = Names("[sweep] --slurm=--partition=gpu", "sbatch", "this machine");
  EXPECT_THAT(refused({"seed=1,2", "--slurm=--partition=gpu"}), told);
  EXPECT_THAT(refused({"seed=1,2", "--launcher", "local", "--slurm=--partition=gpu", "--dry-run"}), told);
  ASSERT_THAT(sweep("out", {"seed=1,2", "train.steps=2"}), Succeeds());
  EXPECT_THAT(resume("out", {"--slurm=--partition=gpu"}), Refuses(told));
}

// With two cores, two jobs of one process have one core each; a point of two ranks has both.
TEST_F(SweepRequest, RanksOfMpiCount) {
  if (const std::string why = why_no_mpi(); !why.empty()) GTEST_SKIP() << why;
  if (two_cores().empty()) GTEST_SKIP() << "needs two cores and taskset (Debian: util-linux)";
  const auto order = [&](const std::string& out, Words more) {
    Words command = sweep_words(out, {"train.steps=2", "seed=1,2", "--jobs", "2"});
    command.insert(command.end(), more.begin(), more.end());
    command.insert(command.begin(), {"taskset", "-c", two_cores()});
    const Outcome o = run_process(command, environment());
    EXPECT_THAT(o, Succeeds());
    std::string text;
    for (const Json& event : events(out)) text += event["event"].get<std::string>() + " ";
    return o.err.find("no MPI") == std::string::npos ? text : "no MPI";
  };
  EXPECT_THAT(order("self", {}), testing::StartsWith("start start "));
  const std::string mpi = order("mpi", {"comm={name: mpi, ranks: 2}"});
  if (mpi == "no MPI") GTEST_SKIP() << "this build has no MPI";
  EXPECT_EQ(mpi, "start end start end ");
}

// lmx sweep: the points of a sweep, random points, and the check that they still match the recipe.

using SweepPoints = SweepTest;

// The list shows points in the order in which they were sampled; the grid shows them at their position.
TEST_F(SweepPoints, AGridOfDrawnPoints) {
  const Outcome o = sweep("out", {"train.steps=4", "optimizer.lr=0.001,0.02,0.3", "model.cells=8,16", "--random", "6"});
  ASSERT_THAT(o, Succeeds());
  std::map<std::string, std::string> listed;
  std::istringstream lines(o.out);
  bool in_grid = false;
  Words across;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Words cells{std::istream_iterator<std::string>(words), {}};
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

// The points of a sweep that an earlier build has begun lack the keys that are newer.
TEST_F(SweepPoints, RecordedPointsLackNewerKeys) {
  ASSERT_THAT(sweep("out", {"train.steps=2", "seed=1,2"}), Succeeds());
  Json json = plan("out");
  for (Json& entry : json["points"]) entry.erase("sha256");
  write("out/sweep.json", json.dump());
  const std::string point = "out/points/0-seed=1.yaml", key = "deterministic: true\n";
  std::string older = read_file(path(point));
  ASSERT_NE(older.find(key), std::string::npos);
  write(point, older.erase(older.find(key), key.size()));
  const Words words{"train.steps=2", "seed=1,2", "--resume", "auto"};
  EXPECT_THAT(sweep("out", words), Succeeds());
  write("tiny.yaml", read_file(path("tiny.yaml")) + "deterministic: false\n");
  EXPECT_THAT(sweep("out", words), Refuses("point 0-seed=1", "--resume " + path("out")));
}

TEST_F(SweepPoints, ARecipeThatHasChangedIsTold) {
  ASSERT_THAT(sweep("out", {"train.steps=2", "seed=1,2"}), Succeeds());
  std::string text = read_file(folder_ / "tiny.yaml");
  write("tiny.yaml", text.replace(text.find("lr: 0.01"), 8, "lr: 0.02"));
  EXPECT_THAT(sweep("out", {"train.steps=2", "seed=1,2", "--resume", "auto"}),
              Refuses("point 0-seed=1", "--resume " + path("out")));
  EXPECT_THAT(resume("out"), Succeeds());
  for (const Words& option :
       {Words{"--seeds", "3"}, {"--random", "7"}, {"--halving", "eta=3,min=4"}, {"--config-dir", path("none")}})
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

TEST_F(SweepPoints, RefuseTheFolderOfARun) {
  refused({"run.dir=a,b"}, {"run.dir=...", "--out DIR"});
  refused({"run.dir=a", "seed=1,2"}, {"run.dir=a:", "--out DIR"});
}

TEST_F(SweepPoints, RandomPointsAreTheSameForASeed) {
  const Words axes{"optimizer.lr=tag(log,interval(0.0001,0.1))", "model.cells=8,16", "train.steps=2"};
  const auto points = [&](const Words& more) {
    const Outcome o = sweep("none", joined(axes, more));
    EXPECT_THAT(o, Succeeds());
    return o.out;
  };
  const std::string five = points({"--random", "5", "--dry-run"});
  EXPECT_EQ(points({"--random", "5", "--dry-run"}), five);
  EXPECT_NE(points({"--random", "5", "--random-seed", "1", "--dry-run"}), five);
  EXPECT_THAT(five, HasSubstr("5 points"));
  ASSERT_THAT(sweep("out", {axes[0], axes[1], axes[2], "--random", "3", "--seeds", "4,9"}), Succeeds());
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

namespace lmx::app::sweep {

// Rounding does not take a number out of its interval.
TEST(SweepDraw, NumbersAreInsideTheirInterval) {
  for (const auto& [low, high] :
       {std::pair{0.99996, 0.99999}, {1.00001, 1.00004}, {-0.99999, -0.99996}, {1, std::nextafter(1, 2)}}) {
    const Axis linear{"clip", {}, std::pair{low, high}, false}, logarithmic{"clip", {}, std::pair{low, high}, true};
    for (const Axis& axis : {linear, logarithmic}) {
      if (axis.logarithmic && low < 0) continue;
      const bool one = high == std::nextafter(low, high);
      for (const Place& place : draw({axis}, one ? 1 : 5, 3)) {
        EXPECT_GE(std::stod(place[0]), low) << place[0];
        EXPECT_LT(std::stod(place[0]), high) << place[0];
      }
    }
  }
  for (const Place& place : draw({{"clip", {}, std::pair{0.1, 0.9}, false}}, 20, 3)) EXPECT_LE(place[0].size(), 6u);
}

// The table of a sweep: which means differ, and its formats.

namespace {

using namespace lmx_test;

// Two samples of three values with the standard deviation 1: the standard error of the difference is sqrt(2/3), and
// t(0.975, 4) is 2.7764, so that 2.2669 is the least difference that is significant.
TEST(MeansDiffer, AtFivePercentByWelchsTest) {
  const std::vector<double> a{20, 21, 22};
  const auto shifted = [&](double by) { return std::vector<double>{20 + by, 21 + by, 22 + by}; };
  EXPECT_FALSE(*difference_of_means(a, shifted(2.26)).significant());
  EXPECT_TRUE(*difference_of_means(a, shifted(2.27)).significant());
  EXPECT_TRUE(*difference_of_means(shifted(2.27), a).significant());
  EXPECT_FALSE(*difference_of_means(a, a).significant());
  // With unequal variances the degrees of freedom are between those of the wider sample and of both.
  const std::vector<double> wide{10, 20, 30}, narrow{34.9, 35, 35.1};  // t = 2.598, 2.0002 degrees of freedom
  EXPECT_FALSE(*difference_of_means(wide, narrow).significant());
  EXPECT_TRUE(*difference_of_means({5, 5}, {6, 6}).significant());
  EXPECT_FALSE(*difference_of_means({5, 5}, {5, 5}).significant());
  EXPECT_FALSE(difference_of_means(a, {50}).significant().has_value());
}

Summary summary() {
  Summary s;
  s.metric = {"valid", "ppl"};
  s.axes.resize(2);
  s.axes[0].name = "optimizer.lr";
  s.axes[1].name = "x_y & z";
  s.seeds = true;
  Configuration best, near, alone;
  best.place = {"0.1", "50%"};
  best.values = {20, 21, 22};
  best.states.resize(3);
  best.best = true;
  near.place = {"0.2", "a~b"};
  near.values = {20.5, 22.5};
  near.states.resize(2);
  near.within_noise = true;
  alone.place = {"0.3", "c\\\\d"};
  alone.values = {30};
  alone.states.resize(1);
  s.configurations = {best, near, alone};
  return s;
}

TEST(SweepTable, HasMeanDeviationAndMarks) {
  const std::string text = lmx::app::sweep::text(summary());
  EXPECT_THAT(text, Names("21 ± 1 (3)", "18.516 to 23.484", "best", "21.5 ± 1.4 (2)", "within noise", "30 "));
  EXPECT_EQ(text.find("8.79"), std::string::npos) << "the interval of two values says nothing:\n" << text;
  EXPECT_THAT(markdown(summary()), Names("| 0.1 | 50% | 21 ± 1 (3) | 18.516 to 23.484 |", "| best |"));
}

TEST(SweepTable, LatexCompiles) {
  const std::string text = latex(summary());
  EXPECT_THAT(text, Names("\\begin{tabular}{llllll}\n\\toprule\n", "optimizer.lr & x\\_y \\& z & valid ppl",
                          "\\textbf{0.1} & \\textbf{50\\%} & \\textbf{21 $\\pm$ 1 (3)}", "a\\textasciitilde{}b",
                          "c\\textbackslash{}\\textbackslash{}d", "\\bottomrule\n\\end{tabular}\n% Mean"));
}

TEST(SweepTable, CsvHasTheValuesOfAllSeeds) {
  EXPECT_THAT(csv(summary()), Names("optimizer.lr,x_y & z,valid ppl,sd,low,high,n,best,within_noise,values,outcomes\n",
                                    "0.1,50%,21,1,", ",3,1,0,20 21 22,", ",2,0,1,20.5 22.5,", "30,,,,1,0,0,30,"));
}

}  // namespace

}  // namespace lmx::app::sweep
