// Runs an op on the CPU and on a CUDA device, and compares the results and the gradients.
#pragma once

#include <gtest/gtest.h>

#include "backend/cuda.h"
#include "ops/array_op_cases.h"

namespace lmx::testing {

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
  }
};

// The values of a tensor of any memory, as double.
inline std::vector<double> values_of(const Context& ctx, const Tensor& t) {
  if (t.dtype() == DType::f64) {
    const auto read = ctx.read<double>(t);
    return {read.get().begin(), read.get().end()};
  }
  const auto read = ctx.read<float>(t);
  return {read.get().begin(), read.get().end()};
}

// The result of an op on one device, and the gradient of each of its inputs for the loss sum(y weights).
struct DeviceOutcome {
  std::vector<std::vector<double>> values;
};

inline DeviceOutcome run_on(const OpCase& c, Device device, DType type, DType compute) {
  Tape tape;
  Context ctx;
  compute_on(ctx, device);
  ctx.tape = &tape;
  ctx.compute = compute;
  const auto here = [&](Tensor t) { return ctx.upload(copy_to(t.to(type), ctx.host)); };
  std::vector<Var> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    Tensor t = f64_tensor(c.inputs[i], i + 1);
    if (c.positive)
      for (double& x : t.values<double>()) x = 0.5 + std::abs(x);
    inputs.emplace_back(here(t), true, str("x", i));
  }
  const Var y = c.result(ctx, inputs);
  DeviceOutcome out{{values_of(ctx, y.value())}};
  tape.backward(ctx, sum(ctx, multiply(ctx, y, Var(here(f64_tensor(y.shape(), 99))))));
  for (const Var& x : inputs) {
    const Gradient& g = x.grad();
    Tensor dense = ctx.zeros(x.shape(), type);
    if (g.dense.defined()) add_tensor(ctx, dense, g.dense);
    for (const RowSparse& piece : g.pieces) add_rows(ctx, dense, piece);
    out.values.push_back(values_of(ctx, dense));
  }
  return out;
}

inline void expect_equal(const OpCase& c, DType type, double tolerance, DType compute) {
  SCOPED_TRACE(str(c.op, ' ', c.name, ' ', name_of(type), ' ', name_of(compute)));
  const DeviceOutcome want = run_on(c, {}, type, compute), got = run_on(c, {Device::Kind::cuda, 0}, type, compute);
  for (size_t k = 0; k < want.values.size(); ++k) {
    ASSERT_EQ(got.values[k].size(), want.values[k].size());
    for (size_t i = 0; i < want.values[k].size(); ++i)
      ASSERT_NEAR(got.values[k][i], want.values[k][i], tolerance * (1 + std::abs(want.values[k][i])))
          << (k == 0 ? "result" : str("gradient of input ", k - 1)) << ", element " << i;
  }
}

inline void expect_equal(const OpCase& c, DType type, double tolerance) {
  expect_equal(c, type, tolerance, type);
}

}  // namespace lmx::testing
