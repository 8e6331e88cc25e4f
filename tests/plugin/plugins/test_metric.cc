// The mean likelihood and the largest number of words. Its fields have names that no metric of lmx uses. The field
// `fault` breaks one promise.
#include <algorithm>
#include <limits>
#include <stdexcept>

#include "lmx/metric.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

struct Config {
  int64_t depth = 2, fault = 0;
  void fields(Fields& f) {
    f.field("depth", depth, "words that are counted", kPositive);
    f.field("fault", fault, "the promise that is broken; 0: none", kNonNegative);
  }
};

class TestMetric final : public Metric {
 public:
  explicit TestMetric(const Config& c) : c_(c) {}
  int64_t words() const override { return c_.fault == 2 ? -1 : c_.depth; }
  int64_t sums() const override { return c_.fault == 1 ? 0 : 2; }
  void add(const Prediction& p, std::span<double> sums) const override {
    if (c_.fault == 9 && p.words.empty()) throw std::out_of_range("a metric without its map");
    if (c_.fault == 3) sums[0] = std::max(sums[0], p.nats);
    if (c_.fault == 4) *(sums.data() + sums.size()) = 1;
    if (c_.fault != 3) sums[0] += p.nats;
    sums[1] += static_cast<double>(p.words.size());
  }
  std::vector<std::pair<std::string, double>> values(std::span<const double> sums, int64_t targets) const override {
    const auto n = static_cast<double>(targets);
    return {{c_.fault == 5 ? "Mean" : "mean", c_.fault == 6 ? std::numeric_limits<double>::quiet_NaN() : sums[0] / n},
            {c_.fault == 8                   ? "mean"
             : c_.fault == 7 && targets == 1 ? "first"
                                             : "largest",
             sums[1] / n}};
  }

 private:
  Config c_;
};

}  // namespace

LMX_PLUGIN(metric, test_metric, Config, TestMetric)
