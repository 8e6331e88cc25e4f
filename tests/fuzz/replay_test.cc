// Runs every seed, including earlier findings, through the same functions, with the compiler and the flags of the
// suite.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "app/experiment/journal.h"
#include "paths.h"
#include "scratch.h"
#include "targets.h"

namespace lmx::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> seeds(const std::string& target) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(lmx_test::source_path()) / "tests/fuzz/seeds" / target))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

class Replay : public testing::TestWithParam<Target> {};

TEST_P(Replay, EverySeedIsReadOrRefused) {
  const std::vector<fs::path> files = seeds(GetParam().name);
  EXPECT_GE(files.size(), 3u);
  for (const fs::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(stream), {}};
    EXPECT_NO_THROW(GetParam().run(input)) << file;
  }
}

TEST_P(Replay, SoIsEveryBeginningOfOne) {
  for (const fs::path& file : seeds(GetParam().name)) {
    std::ifstream stream(file, std::ios::binary);
    std::string input{std::istreambuf_iterator<char>(stream), {}};
    if (input.size() > 4096) continue;
    for (const size_t step = input.size() / 16 + 1; !input.empty();
         input.erase(input.size() - std::min(step, input.size())))
      EXPECT_NO_THROW(GetParam().run(input)) << file << " up to " << input.size();
  }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Replay, testing::ValuesIn(targets()),
                         [](const auto& target) { return std::string(target.param.name); });

// A folder of seeds without a target would not be tested.
TEST(Seeds, EveryFolderHasATarget) {
  for (const auto& entry : fs::directory_iterator(fs::path(lmx_test::source_path()) / "tests/fuzz/seeds")) {
    const std::string name = entry.path().filename().string();
    const bool known = std::any_of(targets().begin(), targets().end(), [&](const Target& t) { return t.name == name; });
    EXPECT_TRUE(known) << name;
  }
}

// An experiment's journal keeps values that are no JSON numbers.

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
