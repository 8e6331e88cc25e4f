// lmx's LSTM layer on a CUDA device against cuDNN's: values, states and gradients; and the time of both. On the
// emulated device a reference takes cuDNN's place.
#include <gtest/gtest.h>

#include <functional>
#include <iostream>

#include "backend/cudnn.h"
#include "lmx/plugin.h"
#include "lstm_op.h"
#include "ops/device_values.h"

namespace lmx::lstm {
namespace {

using lmx::testing::expect_close;
using lmx::testing::kDevice;
using lmx::testing::Place;
using lmx::testing::Values;

// One layer on the device, with equal parameters for lmx and cuDNN.
struct Layer {
  explicit Layer(const LstmShape& s) : shape(s), place(kDevice, s.type == DType::f16 ? DType::f16 : DType::f32) {
    Registry::instance().add_default_directories();
    Registry::instance().find(PluginKind::model, "lstm");
    const bool projects = s.output != s.cells;
    weights = {leaf({4 * s.cells, s.input}, 1, 0.4), leaf({4 * s.cells, s.output}, 2, 0.4), leaf({4 * s.cells}, 3, 1),
               projects ? leaf({s.output, s.cells}, 4, 0.4) : Var()};
    x = leaf({s.steps * s.batch, s.input}, 5, 1);
    h = leaf({s.batch, s.output}, 6, 1).value();
    c = leaf({s.batch, s.cells}, 7, 1).value();
    dy = leaf({s.steps * s.batch, s.output}, 8, 1).value();
  }
  Var leaf(Shape size, uint64_t seed, double factor) {
    Tensor t = lmx::testing::f64_tensor(size, seed);
    for (double& v : t.values<double>()) v *= factor;
    // Values that fp16 represents, so that both sides have the same.
    return Var(
        place.ctx.upload(place.host((shape.type == DType::f16 ? t.to(DType::f32).to(DType::f16) : t).to(DType::f32))),
        true, "leaf");
  }
  Tensor typed(const Tensor& t) {
    return t.dtype() == shape.type ? t : copy_to(copy_to(t, place.ctx.host).to(shape.type), place.ctx.allocator);
  }

  Var forward_own(std::vector<Tensor>& state) {
    return lstm_layer(place.ctx, x, weights, state, {shape.forget_bias, {}});
  }
  // A forward and a backward pass, whose gradients are added to those before.
  void own_pass() {
    std::vector<Tensor> state{h, c};
    const Var y = forward_own(state);
    place.tape.backward(place.ctx, sum(place.ctx, multiply(place.ctx, y, Var(dy))));
  }
  // y, h, c, and the gradients of x, w_ih, w_hh, bias and w_hr.
  std::vector<Values> own() {
    std::vector<Tensor> state{h, c};
    const Var y = forward_own(state);
    std::vector<Values> all{place.values(y.value()), place.values(state[0]), place.values(state[1])};
    place.tape.backward(place.ctx, sum(place.ctx, multiply(place.ctx, y, Var(dy))));
    for (const Var& v : {x, weights.w_ih, weights.w_hh, weights.bias, weights.w_hr})
      if (v.defined()) all.push_back(place.gradient(v));
    return all;
  }

  std::unique_ptr<CudnnLstm> cudnn() {
    std::unique_ptr<CudnnLstm> layer = load_cudnn()->lstm(place.ctx, shape);
    const auto of = [&](const Var& v) { return v.defined() ? typed(v.value()) : Tensor(); };
    layer->set_parameters(place.ctx, {of(weights.w_ih), of(weights.w_hh), of(weights.bias), of(weights.w_hr)});
    return layer;
  }
  std::vector<Values> by_cudnn() {
    const auto layer = cudnn();
    LstmState state{typed(h), typed(c)};
    const Tensor y = layer->forward(place.ctx, typed(x.value()), state);
    const CudnnLstm::Gradients g = layer->backward(place.ctx, typed(dy));
    std::vector<Values> all;
    for (const Tensor& t : {y, state.h, state.c, g.x, g.w.w_ih, g.w.w_hh, g.w.bias, g.w.w_hr})
      if (t.defined())
        all.push_back(place.values(copy_to(copy_to(t, place.ctx.host).to(DType::f32), place.ctx.allocator)));
    return all;
  }

  LstmShape shape;
  Place place;
  LayerWeights weights;
  Var x;
  Tensor h, c, dy;
};

class LstmCudnnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
    if (!load_cudnn()) GTEST_SKIP() << cudnn_unavailable();
  }
};

TEST_F(LstmCudnnCuda, ValuesStatesAndGradientsAreEqual) {
  for (const LstmShape& s : {LstmShape{DType::f32, 5, 3, 7, 6, 6, 1.0}, LstmShape{DType::f32, 4, 2, 5, 9, 4, 0.5},
                             LstmShape{DType::f32, 1, 1, 3, 2, 2, 0}}) {
    SCOPED_TRACE(str(s.steps, " steps, ", s.cells, " cells, output ", s.output));
    expect_close(Layer(s).own(), Layer(s).by_cudnn(), 2e-5);
  }
}

// lmx keeps f32 beside the operands of products, cuDNN keeps fp16 everywhere.
TEST_F(LstmCudnnCuda, InHalfPrecision) {
  for (const LstmShape& s : {LstmShape{DType::f16, 5, 3, 8, 16, 16, 1.0}, LstmShape{DType::f16, 4, 2, 8, 16, 8, 0.5}})
    expect_close(Layer(s).own(), Layer(s).by_cudnn(), 1e-2);
}

// The shape of `lmx bench word_lstm`, at its batch and at that of the paper, and a layer without a projection. Prints
// one JSON line for each, with the milliseconds of a forward and a backward pass. tools/gpu bench runs it.
TEST(LstmTimes, OfTheLoopsOfLmxAndCudnn) {
  if (load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
  if (getenv("LMX_CUDA_LIBRARY")) GTEST_SKIP() << "times of an emulated device mean nothing";
  if (!load_cudnn()) GTEST_SKIP() << cudnn_unavailable();
  const std::unique_ptr<DeviceClock> clock = cuda_device(0).clock();
  const auto milliseconds = [&](const std::function<void()>& pass) {
    constexpr int kWarmUp = 3, kTimes = 20;
    for (int i = 0; i < kWarmUp; ++i) pass();
    const auto begin = static_cast<size_t>(clock->mark());
    for (int i = 0; i < kTimes; ++i) pass();
    const auto end = static_cast<size_t>(clock->mark());
    const std::vector<double> times = clock->times_us();
    return (times[end] - times[begin]) / kTimes / 1000;
  };
  for (const DType type : {DType::f32, DType::f16}) {
    for (const LstmShape& s : {LstmShape{type, 20, 32, 512, 2048, 512, 0}, LstmShape{type, 20, 128, 512, 2048, 512, 0},
                               LstmShape{type, 64, 64, 1024, 1024, 1024, 0}}) {
      Layer layer(s);
      const double own = milliseconds([&] { layer.own_pass(); });
      const std::unique_ptr<CudnnLstm> cudnn = layer.cudnn();
      const Tensor x = layer.typed(layer.x.value()), dy = layer.typed(layer.dy);
      const LstmState before{layer.typed(layer.h), layer.typed(layer.c)};
      const double theirs = milliseconds([&] {
        LstmState state = before;
        (void)cudnn->forward(layer.place.ctx, x, state);
        (void)cudnn->backward(layer.place.ctx, dy);
      });
      std::cout << str(R"({"lstm": ")", name_of(type), R"(", "steps": )", s.steps, R"(, "batch": )", s.batch,
                       R"(, "input": )", s.input, R"(, "cells": )", s.cells, R"(, "output": )", s.output,
                       R"(, "lmx_ms": )", own, R"(, "cudnn_ms": )", theirs, "}\n");
      EXPECT_GT(own, 0);
      EXPECT_GT(theirs, 0);
    }
  }
}

}  // namespace
}  // namespace lmx::lstm
