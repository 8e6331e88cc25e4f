// Confidence intervals and paired tests from the statistics of sentences.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "app/scores/numpy_random.h"
#include "app/scores/translation_scores.h"
#include "lmx/error.h"

namespace lmx {
namespace {

using data::NumpyRandom;

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

}  // namespace lmx
