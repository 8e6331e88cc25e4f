// Dry runs of the character recipes: the numbers of parameters in the papers, and desk twins that compose.
#include <gmock/gmock.h>

#include <map>

#include "app/run/dry_run.h"
#include "names.h"
#include "paths.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

using testing::HasSubstr;

// Runs without corpora: the plan does not depend on them, and the missing ones are reported.
std::string dry_run(const std::string& recipe, std::vector<std::string> more = {}) {
  std::vector<std::string> words{"run", source_path("/recipes/") + recipe + ".yaml", "--dry-run"};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome o = run_lmx(words, {{"LMX_DATA_DIR", missing_path()}, {"OMP_NUM_THREADS", "1"}});
  EXPECT_EQ(o.code, 2) << recipe << ": " << o.err;  // the corpora are missing
  return o.out;
}

TEST(CharacterRecipes, ParametersOfPuri) {
  EXPECT_THAT(dry_run("puri_amazon_4096"), Names("parameters 86,319,360", "40,960", "86,278,400", "one of 128",
                                                 "256 of the 32768", "'amazon_reviews'"));
  EXPECT_THAT(dry_run("puri_amazon_8192"), Names("340,312,320", "one of 8", "96 of the 768"));
}

TEST(CharacterRecipes, ParametersOfPatwary) {
  EXPECT_THAT(dry_run("patwary_char_1b"), Names("parameters 71,034,978", "153,600 tokens", "'one_billion_word'"));
  EXPECT_THAT(dry_run("patwary_char_gutenberg"), HasSubstr("parameters 71,034,978"));
  EXPECT_THAT(dry_run("patwary_tieba"), Names("vocabulary 15,437", "one of 6", "128 of the 768", "no public copy"));
}

TEST(CharacterRecipes, DeskTwins) {
  for (const char* recipe :
       {"puri_amazon_4096", "puri_amazon_8192", "puri_mixed", "puri_width", "puri_convergence", "sentiment_transfer"})
    EXPECT_THAT(dry_run(recipe, {"puri/scale=desk"}), Names("'movie_reviews'")) << recipe;
  EXPECT_THAT(dry_run("patwary_char_1b", {"patwary/scale=desk"}), HasSubstr("vocabulary 98"));
  EXPECT_THAT(dry_run("patwary_tieba", {"patwary/scale=desk"}), HasSubstr("vocabulary 13,000"));
}

// A recipe with every default, without its provenance.
std::string resolved(const std::string& recipe, const std::string& scale) {
  const Outcome o = run_lmx({"config", source_path("/recipes/") + recipe + ".yaml", scale});
  EXPECT_EQ(o.code, 0) << recipe << ": " << o.err;
  return o.out.substr(0, o.out.find("\nprovenance:"));
}

TEST(CharacterRecipes, TwinsDifferWhereTheirRecipesDo) {
  const std::map<std::string, std::vector<std::string>> families{
      {"puri/scale",
       {"puri_amazon_4096", "puri_amazon_8192", "puri_mixed", "puri_width", "puri_convergence", "sentiment_transfer"}},
      {"patwary/scale", {"patwary_char_1b", "patwary_char_gutenberg", "patwary_amazon", "patwary_tieba"}}};
  for (const auto& [group, recipes] : families) {
    std::map<std::string, std::string> twins;
    for (const std::string& recipe : recipes) {
      const auto [twin, fresh] = twins.emplace(resolved(recipe, group + "=desk"), recipe);
      if (fresh) continue;
      EXPECT_EQ(resolved(recipe, group + "=paper"), resolved(twin->second, group + "=paper"))
          << recipe << " and " << twin->second << " differ, their desk twins do not";
    }
  }
}

TEST(CharacterRecipes, TwinsKeepWhatTheirRecipesSay) {
  const auto desk = [](const std::string& recipe) { return resolved(recipe, "puri/scale=desk"); };
  EXPECT_THAT(desk("puri_amazon_4096"), Names("\n  cells: 512\n", "\n  lr: 0.003\n"));
  EXPECT_THAT(desk("puri_amazon_8192"), Names("\n  cells: 1024\n", "\n  lr: 0.00078\n"));
  EXPECT_THAT(desk("puri_width"), HasSubstr("\n  lr: 0.002\n"));
  EXPECT_THAT(desk("sentiment_transfer"), Names("\n  global: 16\n", "\n  lr: 5e-04\n"));
}

// Every point is composed and checked; then the missing corpora are reported.
TEST(CharacterRecipes, SweepsAtThePapersSizeAndAtADesks) {
  const auto points = [](const std::string& recipe, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"sweep", source_path("/recipes/") + recipe + ".yaml", "--dry-run"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome o = run_lmx(words, {{"LMX_DATA_DIR", missing_path()}, {"OMP_NUM_THREADS", "1"}});
    EXPECT_EQ(o.code, 2) << recipe << ": " << o.err;
    return o.out;
  };
  EXPECT_THAT(points("puri_lr_grid"), Names("puri_lr_grid: 20 points", "19-puri_batch=32768-puri_rule=fixed_3e-3",
                                            "86,319,360", "amazon_reviews"));
  const auto desk = [&](const std::string& recipe) { return points(recipe, {"puri/scale=desk"}); };
  EXPECT_THAT(points("puri_width"), Names("puri_width: 3 points", "86,319,360"));
  EXPECT_THAT(desk("puri_width"), Names("puri_width: 4 points", "3-cells=512"));
  EXPECT_THAT(points("puri_mixed"), Names("puri_mixed: 3 points", "puri_mixed=mp_2048"));
  EXPECT_THAT(desk("puri_mixed"), Names("puri_mixed: 3 points", "puri_mixed=desk_mp_2x"));
  EXPECT_THAT(points("puri_convergence"), HasSubstr("puri_convergence: 5 points"));
  EXPECT_THAT(desk("puri_convergence"), Names("3 points", "puri_convergence=desk_64"));
  EXPECT_THAT(points("patwary_seeding"), Names("patwary_seeding: 5 points", "power_0.64", "one_billion_word"));
}

}  // namespace
}  // namespace lmx_test
