// `metric:` of a recipe: what a validation computes beside the likelihood.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmx/metric.h"
#include "lmx/plugin.h"

namespace lmx {

// The metrics of a recipe, {LABEL: {name: PLUGIN, ...}}, whose sums follow each other.
class Metrics {
 public:
  Metrics() = default;
  // UserError: an unknown plugin or field.
  Metrics(const Node& config, const std::string& path);
  bool empty() const { return all_.empty(); }
  int64_t words() const { return words_; }  // the most that one of them needs
  int64_t sums() const { return sums_; }
  // Adds a prediction, which has words(), to `sums` (sums()).
  void add(const Prediction& prediction, std::span<double> sums) const;
  // "LABEL/<name>" and the number, in the recipe's order.
  std::vector<std::pair<std::string, double>> values(std::span<const double> sums, int64_t targets) const;

 private:
  struct One {
    std::string label;
    const PluginInfo* plugin;
    std::unique_ptr<Metric> metric;
    int64_t words, sums;
  };
  std::vector<One> all_;
  int64_t words_ = 0, sums_ = 0;
};

// The metrics with the values of all keys. UserError: as above, or a label that is no name.
Node full_metric_config(const Node& config, const std::string& path);

}  // namespace lmx
