// The synthetic source: exact probabilities, known entropy, and text that follows them.
#include "app/prepare/tokens.h"
#include "data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

namespace lmx::app {
namespace {

SyntheticConfig small() {
  SyntheticConfig c;
  c.vocab_size = 60;
  c.classes = 6;
  c.branching = 5;
  c.train_tokens = 50'000;
  c.valid_tokens = 20'000;
  c.test_tokens = 1000;
  return c;
}

TEST(Synthetic, ProbabilitiesSumToOne) {
  for (const double noise : {0.0, 0.3, 1.0}) {
    SyntheticConfig c = small();
    c.noise = noise;
    const MarkovSource source(c);
    for (int32_t before = 0; before < source.states(); ++before) {
      double sum = 0;
      for (int32_t next = 0; next < source.states(); ++next) sum += source.probability(before, next);
      EXPECT_NEAR(sum, 1, 1e-12) << before;
    }
    EXPECT_EQ(source.probability(0, 0), 0);  // no empty line
  }
}

TEST(Synthetic, StationaryDistributionIsOne) {
  const MarkovSource source(small());
  const std::vector<double> share = source.stationary();
  EXPECT_NEAR(std::accumulate(share.begin(), share.end(), 0.0), 1, 1e-9);
  for (int32_t next = 0; next < source.states(); ++next) {
    double mass = 0;
    for (int32_t before = 0; before < source.states(); ++before) {
      mass += share[static_cast<size_t>(before)] * source.probability(before, next);
    }
    EXPECT_NEAR(mass, share[static_cast<size_t>(next)], 1e-10);
  }
  EXPECT_NEAR(share[0], 1.0 / 13, 1e-9);  // 12 words, then </s>
}

TEST(Synthetic, EntropyRateIsThatOfTheTransitions) {
  const MarkovSource source(small());
  const std::vector<double> share = source.stationary();
  double entropy = 0;
  for (int32_t a = 0; a < source.states(); ++a) {
    for (int32_t b = 0; b < source.states(); ++b) {
      const double p = source.probability(a, b);
      if (p > 0) entropy -= share[static_cast<size_t>(a)] * p * std::log(p);
    }
  }
  EXPECT_NEAR(source.entropy_rate(), entropy, 1e-9);
}

TEST(Synthetic, KnownEntropyOfASimpleSource) {
  SyntheticConfig c = small();
  c.zipf_exponent = 0;  // 58 equal words, whatever stands before
  c.noise = 1;
  const MarkovSource source(c);
  const double after_word = -(1.0 / 12) * std::log(1.0 / 12) - (11.0 / 12) * std::log(11.0 / 12 / 58);
  EXPECT_NEAR(source.entropy_rate(), (12 * after_word + std::log(58)) / 13, 1e-9);
}

TEST(Synthetic, DrawsFollowTheProbabilities) {
  const MarkovSource source(small());
  const auto n = static_cast<size_t>(source.states());
  const std::vector<int32_t> text = source.draw(RandomKey(5), 400'000);
  std::vector<double> pairs(n * n), before(n);
  for (size_t t = 1; t < text.size(); ++t) {
    pairs[static_cast<size_t>(text[t - 1]) * n + static_cast<size_t>(text[t])] += 1;
    before[static_cast<size_t>(text[t - 1])] += 1;
  }
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = 0; b < n; ++b) {
      const double p = source.probability(static_cast<int32_t>(a), static_cast<int32_t>(b));
      const double sigma = std::sqrt(before[a] * p * (1 - p)) + 1;
      EXPECT_NEAR(pairs[a * n + b], before[a] * p, 6 * sigma) << a << " " << b;
    }
  }
}

TEST(Synthetic, PerplexityOfItsTextIsItsEntropyRate) {
  SyntheticConfig c;  // the defaults
  c.valid_tokens = 200'000;
  const MarkovSource source(c);
  const double measured = std::log(source.perplexity(source.draw(RandomKey(1), c.valid_tokens)));
  EXPECT_NEAR(measured, source.entropy_rate(), 0.02);
  EXPECT_GT(std::exp(source.entropy_rate()), 10);   // there is something to learn
  EXPECT_LT(std::exp(source.entropy_rate()), 100);  // and it can be learnt
}

TEST(Synthetic, ATextIsAPureFunctionOfItsKeyAndAPrefixOfALongerOne) {
  const MarkovSource source(small()), again(small());
  const auto shorter = source.draw(RandomKey(2), 1000), longer = again.draw(RandomKey(2), 2000);
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), longer.begin()));
  EXPECT_NE(source.draw(RandomKey(3), 1000), shorter);
}

TEST(Synthetic, WordsAreDifferentAndPronounceable) {
  SyntheticConfig c;
  c.vocab_size = 20'000;
  const std::vector<std::string> words = MarkovSource(c).make_words();
  EXPECT_EQ(words.size(), 19'999u);
  EXPECT_EQ(std::set<std::string>(words.begin(), words.end()).size(), words.size());
  for (size_t i = 1; i < words.size(); ++i) {
    EXPECT_NE(words[i].find_first_of("aeiou"), std::string::npos) << words[i];
    EXPECT_LE(words[i].size(), 30u);
  }
}

TEST(Synthetic, DatasetHasSplitsOfTheSizesAskedFor) {
  const Dataset d = make_synthetic(small());
  EXPECT_EQ(d.train.size(), 50'000);
  EXPECT_EQ(d.valid.size(), 20'000);
  EXPECT_EQ(d.test.size(), 1000);
  EXPECT_EQ(d.vocabulary.size(), 60);
  ASSERT_TRUE(d.true_perplexity.has_value());
  const MarkovSource source(small());
  EXPECT_NEAR(*d.true_perplexity, std::exp(source.entropy_rate()), 0.05 * std::exp(source.entropy_rate()));
  int64_t total = 0;
  for (int32_t id = 0; id < 60; ++id) {
    total += d.vocabulary.count(id);
    EXPECT_EQ(d.vocabulary.count(id), std::count(d.train.tokens().begin(), d.train.tokens().end(), id));
    if (id > 2) {
      EXPECT_LE(d.vocabulary.count(id), d.vocabulary.count(id - 1));
    }
  }
  EXPECT_EQ(total, 50'000);
  EXPECT_EQ(d.vocabulary.count(Vocabulary::kUnk), 0);
  EXPECT_NE(d.hash, make_synthetic([] {
                      auto c = small();
                      c.seed = 2;
                      return c;
                    }())
                        .hash);
}

TEST(Synthetic, NoTestSplitAndTinySources) {
  SyntheticConfig c = small();
  c.test_tokens = 0;
  EXPECT_EQ(make_synthetic(c).test.size(), 0);
  c.vocab_size = 4;
  c.classes = c.branching = 1;
  c.line_length = 1;
  c.noise = 0;
  const Dataset d = make_synthetic(c);  // one word and </s> in turn
  EXPECT_NEAR(*d.true_perplexity, 1, 1e-9);
}

}  // namespace
}  // namespace lmx::app
