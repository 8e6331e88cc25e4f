// Runs every seed, including earlier findings, through the same functions, with the compiler and the flags of the
// suite.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "app/experiment/journal.h"
#include "scratch.h"
#include "targets.h"
#include "test.h"

namespace lmx::fuzz {
namespace {

// The bytes of a text that has a character for each of them, U+0000 to U+00FF.
std::string bytes_of(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool two = static_cast<unsigned char>(text[i]) >= 0xC0;
    bytes += static_cast<char>(two ? text[i] << 6 | (text[i + 1] & 0x3F) : text[i]);
    i += two;
  }
  return bytes;
}

// The seeds of each target, by their names.
using Seeds = std::map<std::string, std::map<std::string, std::string>>;
const Seeds& seeds() {
  static const Seeds all = [] {
    Seeds read = nlohmann::json::parse(std::ifstream(lmx_test::source_path("/tests/fuzz/seeds.json")));
    for (auto& [target, texts] : read)
      for (auto& [name, text] : texts) text = bytes_of(text);
    return read;
  }();
  return all;
}

class Replay : public testing::TestWithParam<Target> {};

TEST_P(Replay, EverySeedIsReadOrRefused) {
  const auto& inputs = seeds().at(GetParam().name);
  EXPECT_GE(inputs.size(), 3u);
  for (const auto& [name, input] : inputs) EXPECT_NO_THROW(GetParam().run(input)) << name;
}

TEST_P(Replay, SoIsEveryBeginningOfOne) {
  for (const auto& [name, seed] : seeds().at(GetParam().name)) {
    std::string input = seed;
    if (input.size() > 4096) continue;
    for (const size_t step = input.size() / 16 + 1; !input.empty();
         input.erase(input.size() - std::min(step, input.size())))
      EXPECT_NO_THROW(GetParam().run(input)) << name << " up to " << input.size();
  }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Replay, testing::ValuesIn(targets()),
                         [](const auto& target) { return std::string(target.param.name); });

// Seeds without a target would not be tested.
TEST(Seeds, EachHasATarget) {
  for (const auto& [name, inputs] : seeds()) {
    const bool known = std::any_of(targets().begin(), targets().end(), [&](const Target& t) { return t.name == name; });
    EXPECT_TRUE(known) << name;
  }
}

// An experiment's journal keeps values that are no JSON numbers.

using app::experiment::Journal;

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
