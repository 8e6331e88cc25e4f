// Runs an op on the CPU and on a CUDA device, and compares the results and the gradients.
#pragma once

#include <cstdlib>
#include <string_view>

#include "ops/array_op_cases.h"
#include "ops/device_values.h"

namespace lmx::testing {

// The result of an op on one device, and the gradient of each of its inputs for the loss sum(y weights).
inline std::vector<Values> run_on(const OpCase& c, Device device, DType type, DType compute, int64_t shift = 0) {
  Place place(device, compute);
  place.type = type;
  place.shift = shift;
  std::vector<Var> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    Tensor t = f64_tensor(c.inputs[i], i + 1);
    if (c.positive)
      for (double& x : t.values<double>()) x = 0.5 + std::abs(x);
    inputs.push_back(place.leaf(t));
  }
  const Var y = c.result(place.ctx, inputs);
  std::vector<Values> out{place.values(y.value())};
  const Var weights = place.leaf(f64_tensor(y.shape(), 99), false);
  place.tape.backward(place.ctx, sum(place.ctx, multiply(place.ctx, y, weights)));
  for (const Var& x : inputs) out.push_back(place.gradient(x));
  return out;
}

// shift: see Place.
inline void expect_equal(const OpCase& c, DType type, double tolerance, DType compute, int64_t shift = 0) {
  SCOPED_TRACE(str(c.op, ' ', c.name, ' ', name_of(type), ' ', name_of(compute)));
  expect_close(run_on(c, kDevice, type, compute, shift), run_on(c, {}, type, compute), tolerance);
}

inline void expect_equal(const OpCase& c, DType type, double tolerance) {
  expect_equal(c, type, tolerance, type);
}

// Whether the CUDA device is the emulated one.
inline bool emulates_device() {
  const char* library = std::getenv("LMX_CUDA_LIBRARY");
  return library && std::string_view(library).find("emulated") != std::string_view::npos;
}

// The emulated device has this error (LMX_EMULATED_ERROR) while the object exists.
struct EmulatedError {
  explicit EmulatedError(const char* error) { setenv("LMX_EMULATED_ERROR", error, 1); }
  ~EmulatedError() { unsetenv("LMX_EMULATED_ERROR"); }
  EmulatedError(const EmulatedError&) = delete;
  EmulatedError& operator=(const EmulatedError&) = delete;
};

}  // namespace lmx::testing
