// For tests of a CUDA device against the CPU: contexts and leaves of either, and their values on the host.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda.h"
#include "device.h"
#include "ops/array_op_cases.h"
#include "ops/gradcheck.h"

namespace lmx::testing {

inline constexpr Device kDevice{Device::Kind::cuda, 0};

using OnDevice = lmx_test::DeviceTest;

using Values = std::vector<double>;

// A context of `device` that records, and tensors in its memory.
struct Place {
  Place(Device device, DType compute) {
    compute_on(ctx, device);
    ctx.tape = &tape;
    ctx.compute = compute;
    type = compute == DType::f64 ? DType::f64 : DType::f32;
  }
  Tensor host(const Tensor& t) const { return copy_to(t, ctx.host); }
  Var leaf(const Tensor& t, bool trains = true) const {
    const int64_t n = t.numel();
    Tensor memory = Tensor::zeros(ctx.host, {shift + n}, type);
    memory.slice(shift, shift + n).copy_from(host(t.to(type)).reshape({n}));
    return Var(ctx.upload(memory).slice(shift, shift + n).reshape(t.shape()), trains, "leaf");
  }
  Values values(const Tensor& t) const { return lmx_test::values_of(ctx, t); }
  // Dense, also if it is row-sparse; zeros if there is none.
  Values gradient(const Var& x) {
    Tensor dense = ctx.zeros(x.shape(), x.value().dtype());
    if (x.grad().dense.defined()) add_tensor(ctx, dense, x.grad().dense);
    for (const RowSparse& piece : x.grad().pieces) add_rows(ctx, dense, piece);
    return values(dense);
  }

  Tape tape;
  Context ctx;
  DType type;
  int64_t shift = 0;  // elements between the begin of a leaf's memory and the leaf
};

// How often `work` launches each kernel of the device.
using Launches = std::map<std::string, int64_t, std::less<>>;
template <class Work>
Launches launches_of(const Work& work) {
  const DeviceCounts before = cuda_device(0).counts();
  work();
  return cuda_device(0).counts().since(before).launches;
}

// The error of each element is relative to the larger of 1 and the element.
inline void expect_close(const std::vector<Values>& got, const std::vector<Values>& want, double tolerance) {
  const auto size = [](double element) { return std::max(1.0, std::abs(element)); };
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < want.size(); ++k) {
    SCOPED_TRACE(str("result ", k));
    ASSERT_NO_FATAL_FAILURE(lmx_test::expect_close(got[k], want[k], tolerance, size));
  }
}

// Layers of rows x.
struct LayerSizes {
  Shape x;
  int64_t units, n;
};

// Ids of the rows of x, for dropout.
inline std::vector<uint64_t> row_ids_of(const Shape& x) {
  std::vector<uint64_t> ids;
  for (int64_t i = 0; i < x.numel() / x[x.rank() - 1]; ++i) ids.push_back((uint64_t{1} << 33) + 7 * ids.size());
  return ids;
}

// y rounded to the type of products. Its gradient is not rounded.
inline Var with_rounded_value(Context& ctx, const Var& y) {
  const Var out(to_compute(ctx, to_compute(ctx, y.value())).to(DType::f32));
  ctx.tape->record("rounded", {y}, {out}, [&ctx, y, out](Tape&) { Tape::accumulate(ctx, y, Tape::grad_of(out)); });
  return out;
}

// y, whose gradient is rounded to the type of products.
inline Var with_rounded_gradient(Context& ctx, const Var& y) {
  const Var out(y.value());
  ctx.tape->record("rounded", {y}, {out}, [&ctx, y, out](Tape&) {
    Tape::accumulate(ctx, y, to_compute(ctx, to_compute(ctx, Tape::grad_of(out))).to(DType::f32));
  });
  return out;
}

// Runs an op on the CPU and on a CUDA device, and compares the results and the gradients.

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
