// Accuracy of the predicted words: the part of the targets that are among the k most probable words, for several k.
#include <algorithm>

#include "lmx/error.h"
#include "lmx/metric.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

struct TopWordsConfig {
  std::vector<int64_t> k{1, 5};
  void fields(Fields& f) { f.field("k", k, "how many of the most probable words count as predicted", {1, 1000}); }
  void check(const std::string& where) const {
    if (k.empty()) throw UserError(str(where, ".k: expected at least one number, such as [1, 5]"));
    for (size_t i = 0; i < k.size(); ++i)
      if (std::find(k.begin(), k.begin() + static_cast<long>(i), k[i]) != k.begin() + static_cast<long>(i))
        throw UserError(str(where, ".k: ", k[i], " is here twice"));
  }
};

class TopWords final : public Metric {
 public:
  explicit TopWords(TopWordsConfig config) : c_(std::move(config)) {}
  int64_t words() const override { return *std::max_element(c_.k.begin(), c_.k.end()); }
  int64_t sums() const override { return static_cast<int64_t>(c_.k.size()); }
  void add(const Prediction& p, std::span<double> sums) const override {
    const auto place = std::find(p.words.begin(), p.words.end(), p.target) - p.words.begin();
    if (place == static_cast<std::ptrdiff_t>(p.words.size())) return;
    for (size_t i = 0; i < c_.k.size(); ++i) sums[i] += place < c_.k[i] ? 1 : 0;
  }
  std::vector<std::pair<std::string, double>> values(std::span<const double> sums, int64_t targets) const override {
    std::vector<std::pair<std::string, double>> all;
    for (size_t i = 0; i < c_.k.size(); ++i)
      all.emplace_back(str("top_", c_.k[i]), sums[i] / static_cast<double>(targets));
    return all;
  }

 private:
  TopWordsConfig c_;
};

}  // namespace

LMX_PLUGIN(metric, top_words, TopWordsConfig, TopWords)
