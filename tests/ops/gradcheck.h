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

}  // namespace lmx::testing
