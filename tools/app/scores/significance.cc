// Confidence intervals and paired tests from the statistics of sentences.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include "app/scores/translation_scores.h"
#include "lmx/error.h"

namespace lmx::app {
namespace {

void add(std::vector<double>& sums, std::span<const double> terms) {
  for (size_t k = 0; k < sums.size(); ++k) sums[k] += terms[k];
}

void require_samples(int64_t count, size_t sentences) {
  if (count < 2) throw UserError(str("[bleu] ", count, " resamples; an interval and a test need at least 2"));
  LMX_CHECK(sentences > 0, "no sentences to resample");
}

void require_pair(const SentenceStatistics& a, const SentenceStatistics& b) {
  LMX_CHECK(a.sentences() == b.sentences() && a.width == b.width, "the systems have ", a.sentences(), " and ",
            b.sentences(), " sentences");
}

// Returns the scores of each system on the same resamples, [system][resample]. The resamples depend only on the seed
// and the number of sentences, so the scores of a system do not depend on the other systems.
std::vector<std::vector<double>> resampled_scores(const CorpusMetric& metric,
                                                  const std::vector<const SentenceStatistics*>& systems,
                                                  int64_t resamples, uint64_t seed) {
  NumpyRandom random(seed);
  const size_t sentences = systems.front()->sentences();
  require_samples(resamples, sentences);
  std::vector<std::vector<double>> scores(systems.size());
  for (int64_t r = 0; r < resamples; ++r) {
    std::vector<std::vector<double>> sums(systems.size(), std::vector<double>(systems.front()->width));
    for (size_t i = 0; i < sentences; ++i) {
      const size_t drawn = random.below(static_cast<uint32_t>(sentences));
      for (size_t s = 0; s < systems.size(); ++s) add(sums[s], systems[s]->of(drawn));
    }
    for (size_t s = 0; s < systems.size(); ++s) scores[s].push_back(metric.score(sums[s]));
  }
  return scores;
}

ScoreInterval interval_of(std::vector<double> scores) {
  std::sort(scores.begin(), scores.end());
  const size_t low = scores.size() / 40, high = scores.size() - low - 1;
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  return {sum / static_cast<double>(scores.size()), 0.5 * (scores[high] - scores[low])};
}

// Returns the fraction of statistics above the observed difference. Adding one to both counts prevents a probability of
// 0.
double p_value(const std::vector<double>& statistics, double difference) {
  const auto above = std::count_if(statistics.begin(), statistics.end(), [&](double s) { return s > difference; });
  return static_cast<double>(above + 1) / static_cast<double>(statistics.size() + 1);
}

}  // namespace

CorpusMetric::~CorpusMetric() = default;

std::string CorpusMetric::details(std::span<const double>) const {
  return "";
}

std::vector<double> SentenceStatistics::sums() const {
  std::vector<double> all(width);
  for (size_t i = 0; i < sentences(); ++i) add(all, of(i));
  return all;
}

std::string metric_signature(const CorpusMetric& metric, size_t references, const std::string& test) {
  return str("nrefs:", references, "|", test.empty() ? "" : test + "|", metric.settings(), "|version:lmx-", kVersion);
}

ScoreInterval bootstrap_interval(const CorpusMetric& metric, const SentenceStatistics& statistics, int64_t resamples,
                                 uint64_t seed) {
  return interval_of(resampled_scores(metric, {&statistics}, resamples, seed)[0]);
}

PairedScore paired_bootstrap(const CorpusMetric& metric, const SentenceStatistics& baseline,
                             const SentenceStatistics& system, int64_t resamples, uint64_t seed) {
  require_pair(baseline, system);
  const auto scores = resampled_scores(metric, {&baseline, &system}, resamples, seed);
  PairedScore result;
  result.score = metric.score(system.sums());
  result.baseline_interval = interval_of(scores[0]);
  result.interval = interval_of(scores[1]);
  // Differences of resamples vary around the observed one; under the hypothesis of equal systems they vary around 0.
  std::vector<double> differences;
  for (size_t r = 0; r < scores[0].size(); ++r) differences.push_back(std::abs(scores[1][r] - scores[0][r]));
  const double mean =
      std::accumulate(differences.begin(), differences.end(), 0.0) / static_cast<double>(differences.size());
  for (double& d : differences) d -= mean;
  result.p_value = p_value(differences, std::abs(metric.score(baseline.sums()) - result.score));
  return result;
}

PairedScore paired_randomization(const CorpusMetric& metric, const SentenceStatistics& baseline,
                                 const SentenceStatistics& system, int64_t trials, uint64_t seed) {
  require_pair(baseline, system);
  require_samples(trials, baseline.sentences());
  NumpyRandom random(seed);
  NumpyRandom::Bits bits(random);
  std::vector<double> differences;
  for (int64_t t = 0; t < trials; ++t) {
    std::vector<double> a(baseline.width), b(baseline.width);
    for (size_t i = 0; i < baseline.sentences(); ++i) {
      const bool keep = bits.next();
      add(keep ? a : b, baseline.of(i));
      add(keep ? b : a, system.of(i));
    }
    differences.push_back(std::abs(metric.score(a) - metric.score(b)));
  }
  PairedScore result;
  result.score = metric.score(system.sums());
  result.p_value = p_value(differences, std::abs(metric.score(baseline.sums()) - result.score));
  return result;
}

namespace {

// SeedSequence: hashes the seed's 32-bit words into a pool of four words, and hashes the pool into the generator's
// seed.
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) {
    std::vector<uint32_t> words;
    do words.push_back(static_cast<uint32_t>(seed));
    while ((seed >>= 32) != 0);
    uint32_t constant = 0x43b0d7e5;
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(i < words.size() ? words[i] : 0, constant, 0x931e8875);
    for (size_t from = 0; from < pool_.size(); ++from) {
      for (size_t to = 0; to < pool_.size(); ++to) {
        if (from != to) pool_[to] = mix(pool_[to], hash(pool_[from], constant, 0x931e8875));
      }
    }
  }

  std::array<uint64_t, 4> state() const {
    std::array<uint32_t, 8> words;
    uint32_t constant = 0x8b51f9dd;
    for (size_t i = 0; i < words.size(); ++i) words[i] = hash(pool_[i % pool_.size()], constant, 0x58f38ded);
    std::array<uint64_t, 4> state;
    for (size_t i = 0; i < state.size(); ++i) state[i] = words[2 * i] | static_cast<uint64_t>(words[2 * i + 1]) << 32;
    return state;
  }

 private:
  static uint32_t hash(uint32_t value, uint32_t& constant, uint32_t factor) {
    value ^= constant;
    constant *= factor;
    value *= constant;
    return value ^ value >> 16;
  }
  static uint32_t mix(uint32_t a, uint32_t b) {
    const uint32_t value = 0xca01f9dd * a - 0x4973f715 * b;
    return value ^ value >> 16;
  }

  std::array<uint32_t, 4> pool_{};
};

}  // namespace

NumpyRandom::NumpyRandom(uint64_t seed) {
  const std::array<uint64_t, 4> s = SeedSequence(seed).state();
  increment_ = (static_cast<Wide>(s[2]) << 64 | s[3]) << 1 | 1;
  next64();
  state_ += static_cast<Wide>(s[0]) << 64 | s[1];
  next64();
}

uint64_t NumpyRandom::next64() {
  constexpr Wide kFactor = static_cast<Wide>(0x2360ED051FC65DA4) << 64 | 0x4385DF649FCCF645;
  state_ = state_ * kFactor + increment_;
  return std::rotr(static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_),
                   static_cast<int>(state_ >> 122));
}

uint32_t NumpyRandom::next32() {
  if (has_half_) {
    has_half_ = false;
    return half_;
  }
  const uint64_t both = next64();
  has_half_ = true;
  half_ = static_cast<uint32_t>(both >> 32);
  return static_cast<uint32_t>(both);
}

// Lemire 2019, "Fast random integer generation in an interval".
uint32_t NumpyRandom::below(uint32_t n) {
  if (n == 1) return 0;  // NumPy consumes no random number in this case
  uint64_t product = static_cast<uint64_t>(next32()) * n;
  if (static_cast<uint32_t>(product) < n) {
    const uint32_t threshold = (0 - n) % n;
    while (static_cast<uint32_t>(product) < threshold) product = static_cast<uint64_t>(next32()) * n;
  }
  return static_cast<uint32_t>(product >> 32);
}

bool NumpyRandom::Bits::next() {
  if (left_ == 0) {
    buffer_ = random_.next32();
    left_ = 31;
  } else {
    buffer_ >>= 1;
    --left_;
  }
  return (buffer_ & 1) != 0;
}

}  // namespace lmx::app
