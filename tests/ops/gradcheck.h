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

}  // namespace lmx::testing
