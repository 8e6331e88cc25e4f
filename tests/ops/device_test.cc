// The ops on a CUDA device against the CPU: results and gradients of every case of the gradient checks, in f64 and f32.
#include "ops/device_cases.h"

namespace lmx::testing {
namespace {

class DeviceOps : public OnDevice {};

TEST_F(DeviceOps, ArrayOpsEqualTheCpu) {
  for (const OpCase& c : all_cases()) {
    expect_equal(c, DType::f64, 1e-12);
    expect_equal(c, DType::f32, 1e-5);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace lmx::testing
