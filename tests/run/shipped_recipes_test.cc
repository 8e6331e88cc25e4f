// Requirements for every shipped recipe: values with their sections, the paper's ranks, working advice.
#include <cmath>
#include <cstdlib>

#include "app/run/dry_run.h"
#include "process/run_fixture.h"

namespace lmx_test {
namespace {

std::string file_of(const std::string& recipe) {
  return source_path("/recipes/") + recipe + ".yaml";
}

Words shipped() {
  Words names;
  for (const auto& entry : fs::directory_iterator(source_path("/recipes")))
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

std::string lmx(Words words, const std::map<std::string, std::string>& environment = {}) {
  const Outcome o = run_lmx(words, environment);
  EXPECT_EQ(o.code, 0) << words[1] << ": " << o.err;
  return o.out;
}

std::string composed(const std::string& recipe) {
  return lmx({"config", file_of(recipe), "--composed"});
}

// The value of a key in the recipe's `provenance`; "" if there is none.
std::string noted(const std::string& yaml, const std::string& key) {
  const std::string provenance = yaml.substr(std::min(yaml.size(), yaml.find("\nprovenance:\n")));
  const Match found = first_match(provenance, "\n  " + key + ": ([^\n]*)");
  return found.empty() ? "" : found[1];
}

Json explained(const std::string& recipe, Words more = {}) {
  Words words{"config", file_of(recipe), "--explain", "--json"};
  words.insert(words.begin() + 2, more.begin(), more.end());
  return Json::parse(lmx(words));
}

std::string note_of(const Json& rows, const std::string& key) {
  for (const Json& row : rows)
    if (row.at("key") == key) return row.at("provenance");
  ADD_FAILURE() << "no key " << key;
  return "";
}

std::string dry_run_of(const std::string& recipe, Words more = {}) {
  const Outcome o = run_lmx(joined({"run", file_of(recipe), "--dry-run"}, more), {{"LMX_DATA_DIR", missing_path()}});
  // Without the paper's corpus, or the memory of its machines, a run is not possible; the plan is printed nevertheless.
  const bool ready =
      o.out.find("data: not ready") == std::string::npos && o.out.find("memory: not enough") == std::string::npos;
  EXPECT_EQ(o.code, ready ? 0 : 2) << recipe << ": " << o.err;
  return o.out;
}

// A recipe of a paper's own size names the paper, and has no desk section.
TEST(ShippedRecipes, EveryValueOfThePapersSizeHasItsSection) {
  int papers = 0;
  for (const std::string& recipe : shipped()) {
    const std::string yaml = composed(recipe);
    if (noted(yaml, "paper").empty() || !noted(yaml, "desk").empty()) continue;
    ++papers;
    Words bare;
    for (const Json& row : explained(recipe))
      if (!row.at("origin").get<std::string>().starts_with("default of") && row.at("provenance") == "")
        bare.push_back(row.at("key"));
    EXPECT_THAT(bare, IsEmpty()) << recipe;
  }
  EXPECT_GE(papers, 25);
}

// The advice of recipes for training without their corpus, with corpora that this machine has.
TEST(ShippedRecipes, WhatIsAdvisedWorks) {
  if (!std::getenv("LMX_DATA_DIR")) GTEST_SKIP() << "LMX_DATA_DIR names no corpora";
  int advised = 0;
  for (const std::string& recipe : shipped()) {
    const std::string advice = noted(composed(recipe), "smaller");
    if (advice.empty() || advice == "''") continue;
    ++advised;
    // `puri/scale=desk`, or puri_lr_grid_desk.yaml
    const Match said = first_match(advice, "[a-z/]*scale=desk|([a-z_]+_desk)\\.yaml");
    ASSERT_FALSE(said.empty()) << advice;
    Words command{"run", file_of(said[1].empty() ? recipe : said[1]), "--dry-run"};
    if (said[1].empty()) command.push_back(said[0]);
    EXPECT_THAT(lmx(command), HasSubstr("data: available")) << recipe;
  }
  EXPECT_GE(advised, 23);
}

// Ten steps of the recipe at its own size, and the commands that it proposes.
class ShakespeareRun : public RunTest, public testing::WithParamInterface<std::pair<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Recipes, ShakespeareRun,
                         testing::Values(std::pair{"shakespeare", "parameters 801,602\n"},
                                         std::pair{"gpt_tinyshakespeare", "parameters 1,783,872\n"}));

TEST_P(ShakespeareRun, TrainsAndWritesCharacters) {
  const auto& [recipe, parameters] = GetParam();
  const Outcome plan = run_lmx({"run", file_of(recipe), "--dry-run"}, environment());
  EXPECT_THAT(plan.out, Names(parameters));
  if (plan.code != 0) GTEST_SKIP() << "tinyshakespeare is not below LMX_DATA_DIR";
  const Outcome o = run_lmx(
      {"run", file_of(recipe), "run.dir=" + path("a"), "train.steps=10", "schedule.warmup=2", "train.eval_tokens=2000"},
      environment());
  ASSERT_THAT(o, Succeeds());
  EXPECT_LT(number_in(o.out, "valid nll_nat ([0-9.]+)"), std::log(66) - 0.4)
      << "it must be better than a uniform guess";
  const std::string generate = "  lmx generate " + path("a") + " --prompt ROMEO --tokens 300\n";
  EXPECT_THAT(o.out, HasSubstr(generate));
  const Outcome text = run_process({"/bin/sh", "-c", generate}, environment_with_lmx());
  EXPECT_THAT(text, Succeeds());
  EXPECT_GT(text.out.size(), 300u);
}

TEST(ShippedRecipes, KnownDecodersHaveTheirParameters) {
  EXPECT_THAT(dry_run_of("gpt2_124m"), Names("parameters 124,439,808\n", "one of 8 with 64 of the 512 sequences"));
  EXPECT_THAT(dry_run_of("llama_1b"), Names("parameters 1,235,814,400\n", "one of 8 with 8 of the 64 sequences"));
}

TEST(ShippedRecipes, BothCorporaOfAMixAreNamed) {
  const auto both = AllOf(HasSubstr("corpus 'wmt16_en_de' is missing"), HasSubstr("or download https://drive"),
                          HasSubstr("corpus 'paracrawl' is missing"), HasSubstr("or for raw pairs"));
  EXPECT_THAT(dry_run_of("ott_paracrawl"), both);
  EXPECT_THAT(run_lmx({"run", file_of("ott_paracrawl")}, {{"LMX_DATA_DIR", missing_path()}}),
              Refuses(both, HasSubstr("scale=desk trains")));
}

TEST(ShippedRecipes, DeskTextIsLikeThePapers) {
  EXPECT_THAT(lmx({"config", file_of("ott_paracrawl"), "scale=desk"}), HasSubstr("wrong_targets: 0.3"));
  EXPECT_THAT(lmx({"config", file_of("patwary_tieba"), "patwary/scale=desk"}), HasSubstr("corpus: zh_poetry"));
  EXPECT_THAT(lmx({"config", file_of("ott_wmt_enfr"), "scale=desk"}), HasSubstr("corpus: multi30k"));
  EXPECT_THAT(lmx({"config", file_of("ott_wmt_enfr"), "scale=desk"}),
              Names("source_language: de", "target_language: en"));
  EXPECT_THAT(lmx({"config", file_of("xiao_fbis"), "xiao/scale=desk"}), HasSubstr("corpus: zh_poetry"));
  EXPECT_THAT(lmx({"config", file_of("xiao_xinhua"), "xiao/scale=desk"}), Names("corpus: gutenberg", "cells: 256"));
}

TEST(ShippedRecipes, OneScaleForAnotherIsNamed) {
  EXPECT_THAT(run_lmx({"run", file_of("puri_amazon_4096"), "scale=desk", "--dry-run"}),
              Refuses(Names("'puri/scale=desk'?"), Not(HasSubstr("+scale"))));
}

TEST(ShippedRecipes, RanksAreThePapers) {
  EXPECT_THAT(dry_run_of("puri_amazon_4096"), HasSubstr("one of 128 with 256 of the 32768 sequences"));
  EXPECT_THAT(dry_run_of("puri_amazon_8192"), HasSubstr("one of 8 with 96 of the 768 sequences"));
  EXPECT_THAT(dry_run_of("puri_width"), HasSubstr("one of 8 with 256 of the 2048 sequences"));
  EXPECT_THAT(dry_run_of("puri_mixed", {"puri/mixed=mp_2048"}), HasSubstr("one of 8 with 256 of the 2048 sequences"));
  EXPECT_THAT(dry_run_of("sentiment_transfer"), HasSubstr("one of 4 with 32 of the 128 sequences"));
  EXPECT_THAT(dry_run_of("patwary_char_1b"), HasSubstr("one of 8 with 128 of the 1024 sequences"));
  EXPECT_THAT(dry_run_of("patwary_amazon"), HasSubstr("one of 64 with 128 of the 8192 sequences"));
  EXPECT_THAT(dry_run_of("patwary_word_gutenberg", {"patwary/gpus=64"}),
              HasSubstr("one of 64 with 32 of the 2048 sequences"));
  for (const char* recipe : {"ott_wmt", "ott_wmt_enfr", "ott_paracrawl"})
    EXPECT_THAT(dry_run_of(recipe), HasSubstr("one of 128 with 1 of the 128 sub-batches")) << recipe;
  for (const int batch : {2048, 4096, 8192, 16384, 32768}) {
    const std::string size = std::to_string(batch);
    const std::string share = "one of " + std::to_string(batch / 256) + " with 256 of the " + size + " sequences";
    EXPECT_THAT(dry_run_of("puri_convergence", {"puri/convergence=batch_" + size}), HasSubstr(share));
    EXPECT_THAT(dry_run_of("puri_lr_grid", {"puri/batch=" + size}), HasSubstr(share));
  }
}

// Patwary 2018, section III-A: 35.2 GB of gathered rows per rank.
TEST(ShippedRecipes, TheExamplesRowsFillARank) {
  EXPECT_THAT(dry_run_of("patwary_example"), HasSubstr("communication 36 GB"));
  EXPECT_THAT(dry_run_of("patwary_example", {"sync=unique"}), HasSubstr("communication 701 MB"));
}

TEST(ShippedRecipes, SinglePrecisionSendsSingles) {
  for (const auto& [recipe, row] : {std::pair{"puri_mixed", "puri/mixed=sp_1024"}, {"sentiment_transfer", "seed=1"}}) {
    EXPECT_THAT(lmx({"config", file_of(recipe), row}), Names("precision: fp32", "kind: none"));
    EXPECT_THAT(dry_run_of(recipe, {row}), Not(HasSubstr("warning"))) << recipe;
  }
  EXPECT_THAT(lmx({"config", file_of("puri_mixed"), "puri/mixed=mp_1024"}), HasSubstr("kind: fp16"));
}

TEST(ShippedRecipes, UnscaledHalvesAreWarnedOf) {
  const auto warning = HasSubstr("sync.rest.codec writes gradients in fp16 with scale 1");
  EXPECT_THAT(dry_run_of("puri_amazon_4096", {"precision=fp32"}), AllOf(HasSubstr("\nwarning: "), warning));
  EXPECT_THAT(dry_run_of("puri_amazon_4096"), Not(warning));
  EXPECT_THAT(dry_run_of("puri_amazon_4096", {"precision=fp32", "sync.rest.codec.scale=1024"}), Not(warning));
}

// A note in `provenance` applies only to the value of the paper.
TEST(ShippedRecipes, WhatReplacesAValueHasNoNoteOfIt) {
  const Json paper = explained("ott_wmt", {"optimizer.lr=0.1"}), desk = explained("ott_wmt", {"scale=desk"});
  EXPECT_THAT(note_of(paper, "model.d"), HasSubstr("section 3.2"));
  EXPECT_EQ(note_of(paper, "optimizer.lr"), "");
  EXPECT_THAT(note_of(paper, "data.corpus"), HasSubstr("section 3.1"));
  EXPECT_EQ(note_of(paper, "data.valid_fraction"), "");  // a default: the note for `data` does not apply
  EXPECT_THAT(note_of(paper, "seed"), HasSubstr("assumed"));
  for (const char* key : {"model.d", "batch.global", "data.corpus", "sync.rest.strategy", "precision"})
    EXPECT_EQ(note_of(desk, key), "") << key;
  EXPECT_THAT(note_of(desk, "optimizer.betas"), HasSubstr("section 3.2"));
  // Options that a group's name selects, and options that the command line selects.
  EXPECT_EQ(note_of(explained("patwary_tieba", {"patwary/scale=desk"}), "data.corpus"), "");
  EXPECT_EQ(note_of(explained("ott_wmt", {"model=lstm", "~model.norm", "~model.share"}), "model.cells"), "");
  EXPECT_THAT(note_of(explained("puri_mixed", {"puri/mixed=sp_1024"}), "precision"), HasSubstr("section VII"));
}

}  // namespace
}  // namespace lmx_test
