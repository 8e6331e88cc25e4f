// Local time as text.
#include "base/clock.h"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace lmx {
namespace {

class Clock : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "XYZ-2", 1);  // two hours ahead
    tzset();
  }
  void TearDown() override {
    setenv("TZ", "UTC0", 1);
    tzset();
  }
};

TEST_F(Clock, IsLocal) {
  EXPECT_EQ(local_time("%Y-%m-%dT%H:%M:%S%z", 0), "1970-01-01T02:00:00+0200");
}

TEST_F(Clock, WhatDoesNotFitIsNothing) {
  EXPECT_EQ(local_time("", 0), "");
  EXPECT_EQ(local_time(std::string(300, 'x').c_str(), 0), "");
  EXPECT_EQ(local_time(std::string(255, 'x').c_str(), 0), std::string(255, 'x'));
}

}  // namespace
}  // namespace lmx
