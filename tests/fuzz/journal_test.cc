// An experiment's journal keeps values that are no JSON numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "app/cells/journal.h"
#include "scratch.h"

namespace lmx::fuzz {
namespace {

using lmx_cli::experiments::Journal;

TEST(ExperimentJournal, KeepsNumbersThatAreNone) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Scratch scratch;
  const std::string path = scratch.path("journal.jsonl");
  Journal(path).add("cell",
                    {1.5, {{7, "test", {{"ppl", kInfinity}, {"least", -kInfinity}, {"unit", NAN}, {"nll", 2.5}}}}, ""});
  const Journal again(path);
  const Journal::Entry* entry = again.find("cell");
  ASSERT_NE(entry, nullptr);
  ASSERT_EQ(entry->evaluations.size(), 1u);
  const auto& values = entry->evaluations[0].values;
  EXPECT_EQ(values.size(), 4u);
  EXPECT_EQ(values.at("ppl"), kInfinity);
  EXPECT_EQ(values.at("least"), -kInfinity);
  EXPECT_TRUE(std::isnan(values.at("unit")));
  EXPECT_EQ(values.at("nll"), 2.5);
}

}  // namespace
}  // namespace lmx::fuzz
