// Tests of the properties that only this metric has; `lmx plugins check` tests those of every metric.
#include <gtest/gtest.h>

#include "lmx/metric.h"
#include "lmx/plugin.h"

namespace {

std::unique_ptr<lmx::Metric> make(const std::string& yaml) {
  lmx::Registry::instance().add_directory(LMX_PLUGIN_DIR);
  const lmx::Node config = lmx::parse_yaml(yaml, "test");
  const lmx::PluginInfo& plugin = lmx::Registry::instance().find(lmx::PluginKind::metric, config, "metric.test");
  return lmx::create<lmx::MetricFactory>(plugin, config, "metric.test");
}

TEST(@Name@, CountsPredictedWords) {
  const auto metric = make("{name: @name@, least: 0.5}");
  const std::vector<int32_t> word{3};
  const std::vector<double> sure{0.9}, unsure{0.4};
  std::vector<double> sums(1);
  for (const int32_t target : {3, 3, 7}) metric->add({target, 1, word, sure}, sums);
  metric->add({3, 1, word, unsure}, sums);
  const auto values = metric->values(sums, 4);
  ASSERT_EQ(values.size(), 1u);
  EXPECT_EQ(values[0].first, "accuracy");
  EXPECT_EQ(values[0].second, 0.5);
}

TEST(@Name@, AWrongFieldIsRefused) {
  EXPECT_THROW(make("{name: @name@, least: 2}"), lmx::UserError);
}

}  // namespace
