// Tests of the properties that only this schedule has; `lmx plugins check` tests those of every schedule.
#include <gtest/gtest.h>

#include "lmx/plugin.h"
#include "lmx/schedule.h"

namespace {

std::unique_ptr<lmx::Schedule> make(const std::string& yaml) {
  lmx::Registry::instance().add_directory(LMX_PLUGIN_DIR);
  return lmx::make_schedule(lmx::parse_yaml(yaml, "test"), "schedule", 0.5);
}

TEST(@Name@, RisesStaysAndFalls) {
  const auto schedule = make("{name: @name@, rise: 4, fall: 10}");
  const auto rate = [&](int64_t update) { return schedule->rate({update, 0, 100}); };
  EXPECT_DOUBLE_EQ(rate(0), 0.125);
  EXPECT_DOUBLE_EQ(rate(3), 0.5);
  EXPECT_DOUBLE_EQ(rate(89), 0.5);
  EXPECT_DOUBLE_EQ(rate(95), 0.25);
  EXPECT_EQ(rate(100), 0);
  EXPECT_EQ(rate(101), 0);
}

TEST(@Name@, AWrongFieldIsRefused) {
  EXPECT_THROW(make("{name: @name@, rise: -1}"), lmx::UserError);
}

}  // namespace
