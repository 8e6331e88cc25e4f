// Scores of translations against sacreBLEU's own numbers (tools/dev/parity/bleu.py, tools/dev/parity/translation_scores.py).
#include "app/scores/bleu.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "app/scores/translation_scores.h"
#include "app/text/utf8.h"
#include "fixture.h"
#include "lmx/error.h"

namespace lmx::app {

// BLEU and chrF against sacreBLEU's own numbers (tools/dev/parity/bleu.py), and what the goldens leave open.

namespace {

using Json = nlohmann::json;
using namespace lmx_test;

const Json& goldens() {
  static const Json all = Json::parse(std::ifstream(lmx_test::source_path("/tests/data/golden/bleu.json")));
  return all;
}

std::string without_version(const std::string& signature) {
  EXPECT_THAT(signature, testing::EndsWith("|version:lmx-" + std::string(kVersion)));
  return signature.substr(0, signature.find("|version"));
}

void compare_bleu(const Json& expected, const Lines& hypothesis, const std::vector<Lines>& references) {
  BleuOptions o{expected["tokenizer"], expected["smoothing"], {}, expected["lower"]};
  if (!expected["value"].is_null()) o.smooth_value = expected["value"].get<double>();
  const BleuScore s = bleu(hypothesis, references, o);
  EXPECT_NEAR(s.score, expected["score"].get<double>(), 1e-9);
  EXPECT_EQ(bleu_text(s), expected["text"].get<std::string>());
  EXPECT_EQ(without_version(bleu_signature(o, references.size())), expected["signature"].get<std::string>());
}

void compare_chrf(const Json& expected, const Lines& hypothesis, const std::vector<Lines>& references) {
  ChrfOptions o;
  o.word_order = expected["words"];
  o.lower_case = expected["lower"];
  EXPECT_NEAR(chrf(hypothesis, references, o), expected["score"].get<double>(), 1e-9);
  const auto metric = make_chrf(o);
  EXPECT_EQ(metric->name(), expected["name"].get<std::string>());
  EXPECT_EQ(without_version(metric_signature(*metric, references.size())), expected["signature"].get<std::string>());
}

TEST(Bleu, EqualsSacreBleu) {
  size_t scores = 0;
  ASSERT_GE(goldens()["cases"].size(), 12u);
  for (const Json& c : goldens()["cases"]) {
    const auto hypothesis = c["hypothesis"].get<Lines>();
    const auto references = c["references"].get<std::vector<Lines>>();
    for (const Json& expected : c["scores"]) {
      SCOPED_TRACE(c["name"].get<std::string>() + " " + expected.dump());
      if (expected["metric"] == "bleu") {
        compare_bleu(expected, hypothesis, references);
      } else {
        compare_chrf(expected, hypothesis, references);
      }
      ++scores;
    }
  }
  EXPECT_GT(scores, 500u);
}

// By hand: 6 of 7 words, 4 of 6, 2 of 5, 1 of 4; 7 words against 8.
TEST(Bleu, MultiBleuByHand) {
  const Lines hypothesis{"a b c d x e f"}, reference{"a b c d e f g h"};
  const std::vector<Lines> references{reference};
  const BleuScore s = bleu(hypothesis, references, multi_bleu_options());
  const double expected = 100 * std::exp(1 - 8.0 / 7) * std::pow(6.0 / 7 * 4 / 6 * 2 / 5 * 1 / 4, 0.25);
  EXPECT_NEAR(s.score, expected, 1e-12);
  EXPECT_EQ(multi_bleu_text(s), "BLEU = 42.38, 85.7/66.7/40.0/25.0 (BP=0.867, ratio=0.875, hyp_len=7, ref_len=8)");
}

TEST(Bleu, CompoundsAreSplitAsThePapersScriptDoes) {
  EXPECT_EQ(split_compounds("a well-known state-of-the-art"),
            "a well ##AT##-##AT## known state ##AT##-##AT## of ##AT##-##AT## the ##AT##-##AT## art");
  EXPECT_EQ(split_compounds("a - b -c d- -"), "a - b -c d- -");
  EXPECT_EQ(split_compounds("x-y-z"), "x ##AT##-##AT## y-z");  // y is used up by the first match
  EXPECT_EQ(split_compounds("ä-ö ü-"), "ä ##AT##-##AT## ö ü-");
  EXPECT_EQ(split_compounds(""), "");
  const std::vector<Lines> references{{"a well-known fact is this"}};
  const Lines hypothesis{"a well-read fact is this"};
  EXPECT_GT(bleu(hypothesis, references, multi_bleu_options(false, true)).precisions[0],
            bleu(hypothesis, references, multi_bleu_options()).precisions[0]);
}

TEST(Bleu, SplittingCompoundsIsInTheSignature) {
  BleuOptions o;
  o.split_compounds = true;
  EXPECT_THAT(bleu_signature(o, 1), HasSubstr("tok:13a+compounds|"));
}

TEST(Bleu, ErrorsSayWhatIsWrong) {
  const Lines two{"a", "b"}, three{"a", "b", "c"};
  const std::vector<Lines> good{two}, mixed{two, three};
  const auto fails = [&](const Lines& h, const std::vector<Lines>& r, BleuOptions o = {}) {
    return user_error([&] { bleu(h, r, o); });
  };
  EXPECT_THAT(fails(three, good), Names("3 lines", "reference 1", "2"));
  EXPECT_THAT(fails(two, mixed), Names("2 lines", "reference 2", "3"));
  EXPECT_THAT(fails(two, {}), Names("no reference"));
  EXPECT_THAT(fails({}, {{}}), Names("hypothesis"));
  EXPECT_THAT(fails(two, good, {"13", "exp", {}}), Names("'13'", "'13a'?", "13a, intl"));
  EXPECT_THAT(fails(two, good, {"13a", "flor", {}}), Names("'flor'", "'floor'?"));
  EXPECT_THAT(fails(two, good, {"13a", "exp", 1.0}), Names("'exp'", "value"));
  EXPECT_THAT(fails(two, good, {"13a", "floor", -1.0}), Names(">= 0"));
  EXPECT_THAT(user_error([&] { chrf(three, good); }), Names("3 lines"));
  EXPECT_THAT(user_error([&] { chrf(two, good, {7}); }), Names("1 to 6"));
  EXPECT_THAT(user_error([&] { chrf(two, good, {6, 0, 0.0}); }), Names("beta"));
}

using ReadLines = lmx_test::DataTest;

TEST_F(ReadLines, EndsOfLinesAndInvalidBytes) {
  write("a.txt", "one\r\n\ntwo\xC3\xBC");
  EXPECT_EQ(read_lines(path("a.txt")), (Lines{"one", "", "twoü"}));
  write("empty.txt", "");
  EXPECT_TRUE(read_lines(path("empty.txt")).empty());
  write("long.txt", std::string(200'000, 'x') + "\n" + std::string(70'000, 'y'));
  EXPECT_EQ(read_lines(path("long.txt")), (Lines{std::string(200'000, 'x'), std::string(70'000, 'y')}));
  write("b.txt", "fine\nbad \xFF\xFE\n");
  EXPECT_THAT(user_error([&] { read_lines(path("b.txt")); }), Names("b.txt:2:", "0xFF", "offset 9"));
  EXPECT_THAT(user_error([&] { read_lines(path("none.txt")); }), Names("none.txt"));
}

TEST(ScoreText, InvalidBytesAreFound) {
  EXPECT_EQ(lmx::find_invalid_utf8("aä€😀"), lmx::kValidUtf8);
  EXPECT_EQ(lmx::find_invalid_utf8("ab\xC3"), 2u);             // cut
  EXPECT_EQ(lmx::find_invalid_utf8("\xC0\xAF"), 0u);           // longer than needed
  EXPECT_EQ(lmx::find_invalid_utf8("a\xED\xA0\x80"), 1u);      // half of a surrogate pair
  EXPECT_EQ(lmx::find_invalid_utf8("a\xF4\x90\x80\x80"), 1u);  // beyond U+10FFFF
  EXPECT_EQ(trim_end("a\u3000b \u00a0\u2003\n"), "a\u3000b");
  EXPECT_EQ(trim_end(" \t"), "");
}

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
  NumpyRandom random(expected["seed"].get<uint64_t>());
  for (const Json& call : expected["below"]) {
    for (const Json& number : call[1]) EXPECT_EQ(random.below(call[0].get<uint32_t>()), number.get<uint32_t>());
  }
  NumpyRandom::Bits bits(random);
  for (const Json& bit : expected["bits"]) EXPECT_EQ(bits.next(), bit.get<bool>());
  for (const Json& number : expected["after"]) EXPECT_EQ(random.below(7), number.get<uint32_t>());
  NumpyRandom wide(expected["wide seed"].get<uint64_t>());
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
}  // namespace lmx::app
