// A metric that needs no words, for tests: the mean negative log-likelihood.
#include "lmx/metric.h"
#include "lmx/plugin.h"

namespace {

using namespace lmx;

struct MeanNatsConfig {
  void fields(Fields&) {}
};

class MeanNats final : public Metric {
 public:
  int64_t words() const override { return 0; }
  int64_t sums() const override { return 1; }
  void add(const Prediction& p, std::span<double> sums) const override { sums[0] += p.nats; }
  std::vector<std::pair<std::string, double>> values(std::span<const double> sums, int64_t targets) const override {
    return {{"nats", sums[0] / static_cast<double>(targets)}};
  }
};

std::unique_ptr<Metric> make_mean_nats(const Node& config, const std::string& path) {
  read_config<MeanNatsConfig>(config, path);
  return std::make_unique<MeanNats>();
}

}  // namespace

LMX_PLUGIN(metric, mean_nats, MeanNatsConfig, make_mean_nats)
