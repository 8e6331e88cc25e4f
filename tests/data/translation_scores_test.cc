// Sentence scores, TER, intervals and paired tests against sacreBLEU's own numbers
// (tools/parity/translation_scores.py).
#include "app/scores/translation_scores.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "fixture.h"
#include "names.h"
#include "paths.h"

namespace lmx {
namespace {

using lmx_test::Names;

using Json = nlohmann::json;
using Systems = std::vector<Lines>;

const Json& score_goldens() {
  static const Json all =
      Json::parse(std::ifstream(lmx_test::source_path("/tests/data/golden/translation_scores.json")));
  return all;
}

std::unique_ptr<CorpusMetric> metric_named(const std::string& name) {
  BleuOptions bleu_options;
  ChrfOptions chrf_options;
  bleu_options.lower_case = name == "bleu lower";
  chrf_options.word_order = name == "chrf++" ? 2 : 0;
  if (name.starts_with("bleu")) return make_bleu(bleu_options);
  if (name.starts_with("chrf")) return make_chrf(chrf_options);
  return make_ter({.case_sensitive = name == "ter cased"});
}

std::unique_ptr<CorpusMetric> effective_bleu() {
  BleuOptions options;
  options.effective_order = true;
  return make_bleu(options);
}

TEST(NumpyRandom, DrawsNumpysNumbers) {
  const Json& expected = score_goldens()["numbers"];
  data::NumpyRandom random(expected["seed"].get<uint64_t>());
  for (const Json& call : expected["below"]) {
    for (const Json& number : call[1]) EXPECT_EQ(random.below(call[0].get<uint32_t>()), number.get<uint32_t>());
  }
  data::NumpyRandom::Bits bits(random);
  for (const Json& bit : expected["bits"]) EXPECT_EQ(bits.next(), bit.get<bool>());
  for (const Json& number : expected["after"]) EXPECT_EQ(random.below(7), number.get<uint32_t>());
  data::NumpyRandom wide(expected["wide seed"].get<uint64_t>());
  for (const Json& number : expected["wide"]) EXPECT_EQ(wide.below(1000), number.get<uint32_t>());
}

void compare_sentences(const CorpusMetric& metric, const Json& expected, const Lines& hypothesis,
                       const Systems& references) {
  const SentenceStatistics statistics = metric.statistics(hypothesis, references);
  ASSERT_EQ(statistics.sentences(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(metric.score(statistics.of(i)), expected[i].get<double>(), 1e-9) << metric.name() << " line " << i + 1;
}

TEST(TranslationScores, SentencesAndTerEqualSacreBleu) {
  ASSERT_GE(score_goldens()["cases"].size(), 20u);
  for (const Json& c : score_goldens()["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const auto hypothesis = c["hypothesis"].get<Lines>();
    const auto references = c["references"].get<Systems>();
    const Json& scores = c["scores"];
    compare_sentences(*effective_bleu(), scores["bleu"], hypothesis, references);
    compare_sentences(*make_chrf({}), scores["chrf"], hypothesis, references);
    compare_sentences(*make_ter({}), scores["ter"], hypothesis, references);
    const auto corpus = [&](const CorpusMetric& m) { return m.score(m.statistics(hypothesis, references).sums()); };
    EXPECT_NEAR(corpus(*make_ter({})), scores["ter corpus"].get<double>(), 1e-9);
    EXPECT_NEAR(corpus(*effective_bleu()), scores["effective corpus"].get<double>(), 1e-9);
  }
}

// sacreBLEU sums in single precision, hence the tolerance of scores.
void compare_test(const Json& expected, const Systems& systems, const Systems& references) {
  const auto metric = metric_named(expected["metric"]);
  const bool bootstrap = expected["test"] == "bs";
  const auto samples = expected["samples"].get<int64_t>();
  const SentenceStatistics baseline = metric->statistics(systems[0], references);
  const std::string test = str(expected["test"].get<std::string>(), ":", samples, "|seed:", kScoreSeed);
  EXPECT_EQ(metric_signature(*metric, references.size(), test),
            expected["signature"].get<std::string>() + "|version:lmx-" + kVersion);
  ScoreInterval alone;
  if (bootstrap) {
    alone = bootstrap_interval(*metric, baseline, samples);
    EXPECT_NEAR(alone.mean, expected["results"][0]["mean"].get<double>(), 1e-4);
    EXPECT_NEAR(alone.half_width, expected["results"][0]["ci"].get<double>(), 1e-4);
  }
  for (size_t i = 1; i < systems.size(); ++i) {
    const Json& result = expected["results"][i];
    const SentenceStatistics system = metric->statistics(systems[i], references);
    const PairedScore paired = bootstrap ? paired_bootstrap(*metric, baseline, system, samples)
                                         : paired_randomization(*metric, baseline, system, samples);
    EXPECT_NEAR(paired.score, result["score"].get<double>(), 1e-9);
    EXPECT_NEAR(paired.p_value, result["p"].get<double>(), 1e-12);
    if (!bootstrap) continue;
    EXPECT_NEAR(paired.interval.half_width, result["ci"].get<double>(), 1e-4);
    EXPECT_EQ(paired.baseline_interval.mean, alone.mean);
    EXPECT_EQ(paired.baseline_interval.half_width, alone.half_width);
    EXPECT_EQ(paired.interval.mean, bootstrap_interval(*metric, system, samples).mean);
  }
}

TEST(TranslationScores, IntervalsAndPairedTestsEqualSacreBleu) {
  size_t tests = 0;
  for (const Json& c : score_goldens()["compared"]) {
    for (const Json& expected : c["tests"]) {
      SCOPED_TRACE(expected["metric"].get<std::string>() + " " + expected["test"].get<std::string>());
      compare_test(expected, c["systems"].get<Systems>(), c["references"].get<Systems>());
      ++tests;
    }
  }
  EXPECT_EQ(tests, 24u);
}

// sacreBLEU's convention: only larger differences count, so a system compared with itself gets the smallest p-value.
TEST(TranslationScores, ASystemComparedWithItselfGetsTheSmallestP) {
  const Systems references{{"a b c d e", "f g h i", "a c e g"}};
  const auto metric = make_ter({});
  const SentenceStatistics same = metric->statistics({"a b c", "f h g i", "a c e"}, references);
  EXPECT_EQ(paired_randomization(*metric, same, same, 50).p_value, 1.0 / 51);
  EXPECT_EQ(paired_bootstrap(*metric, same, same, 50).p_value, 1.0 / 51);
}

TEST(TranslationScores, OneResampleIsNoInterval) {
  const Systems references{{"a b"}};
  const auto metric = make_chrf({});
  const SentenceStatistics s = metric->statistics({"a b"}, references);
  EXPECT_THAT(lmx_test::user_error([&] { bootstrap_interval(*metric, s, 1); }), Names("at least 2"));
}

}  // namespace
}  // namespace lmx
