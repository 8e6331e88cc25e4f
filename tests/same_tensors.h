// Expectations about named tensors of the host.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "lmx/parameters.h"

namespace lmx_test {

// Equal names, shapes, types and bits.
inline void expect_same(const lmx::StateDict& a, const lmx::StateDict& b, const std::string& what = "") {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (const auto& [name, t] : a) {
    ASSERT_TRUE(b.contains(name)) << what << ' ' << name;
    const lmx::Tensor& u = b.at(name);
    ASSERT_EQ(t.shape(), u.shape()) << what << ' ' << name;
    ASSERT_EQ(t.dtype(), u.dtype()) << what << ' ' << name;
    EXPECT_EQ(std::memcmp(t.raw(), u.raw(), static_cast<size_t>(t.bytes())), 0) << what << ' ' << name;
  }
}

}  // namespace lmx_test
