// For tests on a CUDA device: those of ops and kernels (Device...), which compare it with the CPU, and those of models
// that run on any device.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "backend/cuda.h"

namespace lmx_test {

// A test that is skipped without a device.
class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (lmx::load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
  }
};

inline lmx::Context context_on(lmx::Device::Kind kind, lmx::DType compute = lmx::DType::f32) {
  lmx::Context ctx;
  lmx::compute_on(ctx, {kind, 0});
  ctx.compute = compute;
  return ctx;
}

// The device that the environment variable LMX_TEST_DEVICE names (cpu, cuda), by default the CPU.
inline std::string test_device() {
  const char* name = std::getenv("LMX_TEST_DEVICE");
  return name ? name : "cpu";
}
inline lmx::Context test_context() {
  lmx::Context ctx;
  lmx::compute_on(ctx, lmx::device_named(test_device(), "LMX_TEST_DEVICE"));
  return ctx;
}

// The values of a floating-point tensor of any memory.
inline std::vector<double> values_of(const lmx::Context& ctx, const lmx::Tensor& t) {
  if (t.numel() == 0) return {};
  if (t.dtype() == lmx::DType::f64) {
    const auto read = ctx.read<double>(t);
    return {read.get().begin(), read.get().end()};
  }
  const auto read = ctx.read<float>(t);
  return {read.get().begin(), read.get().end()};
}

// Equal within a tolerance, relative to the `size` of each element; Inf and NaN must be in the same places.
inline void expect_close(
    const std::vector<double>& got, const std::vector<double>& want, double tolerance,
    double (*size)(double) = [](double element) { return 1 + std::abs(element); }) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (!std::isfinite(want[i])) {
      ASSERT_TRUE(std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i]) << got[i] << " at " << i;
    } else {
      ASSERT_NEAR(got[i], want[i], tolerance * size(want[i])) << "element " << i;
    }
  }
}

}  // namespace lmx_test
