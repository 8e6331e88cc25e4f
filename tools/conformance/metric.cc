// Checks of metrics: sums that do not depend on how predictions are divided among ranks, and results with fixed names.
#include "lmx/metric.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "conformance/conformance.h"
#include "lmx/random.h"

namespace lmx::app::conformance {
namespace {

constexpr int64_t kMetricWords = 40, kPredictions = 300, kMostWords = int64_t{1} << 20;
constexpr double kRounding = 1e-9;

// The prediction of one target, with its words.
struct Predicted {
  int32_t target = 0;
  double nats = 0;
  std::vector<int32_t> words = {};
  std::vector<double> probabilities = {};
  Prediction of() const { return {target, nats, words, probabilities}; }
};

// A random distribution over `vocabulary` words, of which the most probable ones are often the target.
Predicted predicted(int64_t index, int64_t words, int64_t vocabulary) {
  const RandomKey key = RandomKey(5).fold(static_cast<uint64_t>(index));
  std::vector<std::pair<double, int32_t>> all;  // minus the probability, so that they ascend
  double total = 0;
  for (int64_t w = 0; w < vocabulary; ++w) {
    const double weight = std::exp(2 * key.normal(static_cast<uint64_t>(w)));
    total += weight;
    all.emplace_back(-weight, static_cast<int32_t>(w));
  }
  std::sort(all.begin(), all.end());
  const uint64_t place =
      std::min(key.below(1000, static_cast<uint64_t>(vocabulary)), key.below(1001, static_cast<uint64_t>(vocabulary)));
  Predicted p{all[place].second, -std::log(-all[place].first / total)};
  for (int64_t i = 0; i < std::min(words, vocabulary); ++i) {
    p.words.push_back(all[static_cast<size_t>(i)].second);
    p.probabilities.push_back(-all[static_cast<size_t>(i)].first / total);
  }
  return p;
}

class MetricCheck {
 public:
  explicit MetricCheck(const Subject& s) : metric_(create<MetricFactory>(s.plugin, s.config, "metric.check")) {
    if (!metric_) fail("the factory returns no metric");
  }

  void run(Report& report) {
    report.run("sums", [&] { return count(); });
    report.run("words", [&] { return words(); });
    if (report.failures() > 0) return;
    for (int64_t i = 0; i < kPredictions; ++i) all_.push_back(predicted(i, metric_->words(), kMetricWords));
    report.run("bounds", [&] { return bounds(); });
    report.run("addition", [&] { return addition(); });
    report.run("few words", [&] { return few_words(); });
    report.run("values", [&] { return values(); });
  }

 private:
  std::string count() const {
    if (metric_->sums() < 1) fail("sums() is ", metric_->sums(), "; a metric adds up at least one number");
    return str(metric_->sums(), " numbers are added up");
  }

  std::string words() const {
    const int64_t words = metric_->words();
    if (words < 0 || words > kMostWords) fail("words() is ", words, ", no number from 0 to ", kMostWords);
    return str("the ", words, " most probable words of each prediction");
  }

  std::vector<double> sums_of(std::span<const Predicted> some) const {
    std::vector<double> sums(static_cast<size_t>(metric_->sums()) + 1);  // one more: see bounds()
    for (const Predicted& p : some) metric_->add(p.of(), std::span(sums).first(sums.size() - 1));
    sums.pop_back();
    return sums;
  }

  std::string bounds() const {
    constexpr double kGuard = 4711;
    const auto n = static_cast<size_t>(metric_->sums());
    std::vector<double> sums(n + 2);
    sums.front() = sums.back() = kGuard;
    for (const Predicted& p : all_) metric_->add(p.of(), std::span(sums).subspan(1, n));
    if (sums.front() != kGuard || sums.back() != kGuard)
      fail("add() writes ", sums.front() != kGuard ? "before" : "behind", " its ", n, " numbers");
    return "add() writes to its own numbers alone";
  }

  // Two ranks, one of which sees its predictions in another order.
  std::string addition() const {
    std::vector<Predicted> even, odd;
    for (size_t i = 0; i < all_.size(); ++i) (i % 2 ? odd : even).push_back(all_[i]);
    std::reverse(odd.begin(), odd.end());
    const std::vector<double> want = sums_of(all_), first = sums_of(even), second = sums_of(odd);
    for (size_t i = 0; i < want.size(); ++i) {
      if (!std::isfinite(want[i])) fail("sums[", i, "] of ", kPredictions, " predictions is ", want[i]);
      if (std::abs(first[i] + second[i] - want[i]) > kRounding * (1 + std::abs(want[i])))
        fail("sums[", i, "] of one half of the predictions is ", first[i], ", of the other one ", second[i],
             ", and of all ", want[i], "; the sums of ranks are added, and each rank has other predictions");
    }
    return "the sums of two halves add up to those of all predictions, in any order";
  }

  std::string few_words() const {
    std::vector<Predicted> few;
    for (int64_t i = 0; i < 20; ++i) few.push_back(predicted(i, metric_->words(), 1 + i % 3));
    few.push_back({0, std::numeric_limits<double>::quiet_NaN()});  // of a model that has diverged
    static_cast<void>(sums_of(few));
    return "vocabularies of one to three words, and a prediction without words";
  }

  std::string values() const {
    const std::vector<double> sums = sums_of(all_);
    const auto all = metric_->values(sums, kPredictions),
               one = metric_->values(sums_of(std::span<const Predicted>(all_).first(1)), 1);
    if (all.empty()) fail("values() returns nothing");
    std::set<std::string> names;
    std::string text;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto& [name, value] = all[i];
      const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.'; };
      if (name.empty() || !std::all_of(name.begin(), name.end(), fits))
        fail("the name '", name, "' of a value has other characters than small letters, digits, _ and .");
      if (!names.insert(name).second) fail("the name '", name, "' is there twice");
      if (!std::isfinite(value)) fail(name, " of ", kPredictions, " predictions is ", value);
      if (one.size() != all.size() || one[i].first != name) fail("values() of other sums has other names");
      text += (text.empty() ? "" : ", ") + name;
    }
    return text;
  }

  std::unique_ptr<Metric> metric_;
  std::vector<Predicted> all_;
};

}  // namespace

void check_metric(Report& report, const Subject& subject) {
  report.run("construction", [&] {
    const MetricCheck check(subject);
    return std::string("from its fields");
  });
  if (report.failures() == 0) MetricCheck(subject).run(report);
}

}  // namespace lmx::app::conformance
