// The verdict on one claim of an experiment.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/experiment/estimate.h"

namespace lmx_cli::experiments {

inline constexpr const char* kReproduced = "reproduced";
inline constexpr const char* kRefuted = "refuted";
inline constexpr const char* kUndecided = "undecided";
inline constexpr const char* kByConstruction = "by construction";
inline constexpr const char* kNotComparable = "not comparable";
inline constexpr const char* kNotMeasured = "not measured";
// A plan cannot reproduce or refute a measurement: it agrees with it or misses it.
inline constexpr const char* kPlannerAgrees = "the planner agrees";
inline constexpr const char* kPlannerMisses = "the planner misses";  // perhaps followed by how far

struct Verdict {
  std::string claim, kind, paper, measured, expected;
  std::string verdict;  // one of the above, or "depends on ..."
  std::string reason;
  std::vector<Estimate> estimates = {};  // of `value`, or of each formula of `ascending`
  bool planned = false;                  // numbers of the planner are part of it
  std::optional<TTest> test = {};        // nothing: no test decides the verdict
  bool fails() const { return verdict == kRefuted || verdict.starts_with(kPlannerMisses); }
};

// Compares the numbers of a claim. If a test decides the verdict, the verdict is empty until conclude().
// UserError: a formula that cannot be evaluated.
Verdict compare(const Check& check, const ResultScope& scope);
// The same, but the verdict is `not measured` if a formula cannot be evaluated.
Verdict judge(const Check& check, const ResultScope& scope);
// Gives the verdict that the adjusted test decides. `comparisons`: how many tests of the table depend on chance.
void conclude(Verdict& verdict, const Check& check, size_t comparisons);

// "p = 0.12 after correction for 9 comparisons".
std::string significance_text(const TTest& test, size_t comparisons);
// "2.5 %".
std::string percent_text(double fraction);
// |value / expected - 1|; 0 if both are equal.
double distance(double value, double expected);

}  // namespace lmx_cli::experiments
