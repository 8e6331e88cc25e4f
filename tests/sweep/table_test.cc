// The table of a sweep: which means differ, and its formats.
#include "app/sweep/table.h"

#include <gmock/gmock.h>

#include "app/records/half_interval.h"
#include "names.h"

namespace lmx_cli::sweeps {
namespace {

using lmx_test::Names;

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
  const std::string text = sweeps::text(summary());
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
}  // namespace lmx_cli::sweeps
