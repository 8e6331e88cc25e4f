// lmx/gradcheck.h with GoogleTest's assertions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "lmx/gradcheck.h"

namespace lmx::testing {

inline void gradcheck(const ScalarFunction& f, std::vector<Var> leaves, GradcheckOptions options = {}) {
  ASSERT_EQ(gradcheck_problem(f, std::move(leaves), options), "");
}

inline void expect_near(const std::vector<double>& got, const std::vector<double>& expected, double tolerance,
                        const char* what) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], tolerance) << what << '[' << i << ']';
}

// The largest error of an element, relative to the largest element of `want`. Infinite if an error is not finite.
template <class Got, class Want>
double difference(const Got& got, const Want& want) {
  EXPECT_EQ(got.size(), want.size());
  double most = 0, size = 1e-30;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    const double wanted = static_cast<double>(want[i]), error = std::abs(static_cast<double>(got[i]) - wanted);
    if (!std::isfinite(error)) return INFINITY;
    most = std::max(most, error);
    size = std::max(size, std::abs(wanted));
  }
  return most / size;
}

}  // namespace lmx::testing
