// How often the next word is the most probable one, to start from. See lmx/metric.h for what each function promises.
#include "lmx/metric.h"
#include "lmx/plugin.h"

namespace {

// The keys of an entry `metric: {LABEL: {name: @name@, ...}}` in a recipe.
struct @Name@Config {
  double least = 0;
  void fields(lmx::Fields& f) {
    f.field("least", least, "probability below which a prediction counts as wrong", lmx::kFraction);
  }
};

class @Name@ : public lmx::Metric {
 public:
  explicit @Name@(const @Name@Config& config) : c_(config) {}
  int64_t words() const override { return 1; }
  int64_t sums() const override { return 1; }
  void add(const lmx::Prediction& p, std::span<double> sums) const override {
    if (!p.words.empty() && p.words[0] == p.target && p.probabilities[0] >= c_.least) sums[0] += 1;
  }
  std::vector<std::pair<std::string, double>> values(std::span<const double> sums, int64_t targets) const override {
    return {{"accuracy", sums[0] / static_cast<double>(targets)}};
  }

 private:
  @Name@Config c_;
};

}  // namespace

LMX_PLUGIN(metric, @name@, @Name@Config, @Name@)
