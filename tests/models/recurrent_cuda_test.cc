// The pointwise kernels of the multiplicative LSTM and the recurrent highway network on a CUDA device against the CPU:
// same source, same numbers up to rounding.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "backend/cuda.h"
#include "lmx/kernels.h"
#include "lmx/lstm_cell.h"
#include "lmx/operand.h"
#include "lmx/plugin.h"
#include "mlstm_kernels.h"
#include "ops/gradcheck.h"
#include "rhn_kernels.h"

namespace lmx {
namespace {

constexpr int64_t kBatch = 5, kCells = 300;

using Kernels = std::function<void(Device::Kind, std::vector<Tensor>&)>;

// Tensors of these shapes, which `run` changes in place, after it has run on the CPU and on the device.
void expect_equal(const char* plugin, const std::vector<Shape>& shapes, const Kernels& run) {
  Registry::instance().add_default_directories();
  Registry::instance().find(PluginKind::model, plugin);
  const auto on = [&](const std::shared_ptr<Allocator>& a) {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < shapes.size(); ++i)
      tensors.push_back(copy_to(testing::f64_tensor(shapes[i], i + 1).to(DType::f32), a));
    run(a->device().kind, tensors);
    for (Tensor& t : tensors) t = copy_to(t, Allocator::cpu());
    return tensors;
  };
  const std::vector<Tensor> want = on(Allocator::cpu()), got = on(cuda_device(0).memory());
  for (size_t k = 0; k < want.size(); ++k) {
    for (int64_t i = 0; i < want[k].numel(); ++i)
      ASSERT_NEAR(got[k].data<float>()[i], want[k].data<float>()[i], 2e-6) << k << ' ' << i;
  }
}

class RecurrentCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
  }
};

TEST_F(RecurrentCuda, MlstmProductsEqualTheCpus) {
  const Shape state{kBatch, kCells};
  expect_equal("mlstm", {state, state, state, state}, [](Device::Kind kind, std::vector<Tensor>& t) {
    Context ctx;
    compute_on(ctx, {kind, 0});
    float *a = t[0].data<float>(), *b = t[1].data<float>();
    run_kernel(ctx, mlstm::ProductStep<float>{a, b, t[2].data<float>(), kBatch, kCells});
    run_kernel(ctx, mlstm::ProductBackwardStep<float>{a, b, t[3].data<float>(), kBatch, kCells});
  });
}

template <class Gates>
void expect_equal_highways() {
  const int64_t gates = Gates::kBlocks * kCells;
  const Shape state{kBatch, kCells};
  expect_equal("rhn", {{kBatch, gates}, {gates}, state, state, state}, [](Device::Kind kind, std::vector<Tensor>& t) {
    Context ctx;
    compute_on(ctx, {kind, 0});
    run_kernel(ctx, rhn::ForwardStep<Gates, float>{t[0].data<float>(), t[1].data<float>(), t[2].data<float>(),
                                                   t[3].data<float>(), kBatch, kCells, -0.7f});
    run_kernel(ctx, rhn::BackwardStep<Gates, float>{t[0].data<float>(), t[2].data<float>(), t[4].data<float>(), kBatch,
                                                    kCells});
  });
}

// `step` writes `result`, and in the same launch its rounded copy.
template <class Step>
void expect_rounded_operand(Context& ctx, Step step, const Tensor& result) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor operand = ctx.empty(result.shape(), type);
    step.operand = operand_target(ctx, operand);
    run_kernel(ctx, step);
    const Tensor got = copy_to(operand, ctx.host), want = copy_to(result, ctx.host).to(type);
    EXPECT_EQ(std::memcmp(got.raw(), want.raw(), static_cast<size_t>(want.bytes())), 0)
        << Step::kName << ' ' << name_of(type);
  }
}

template <class Gates>
void expect_rounded_highways(Context& ctx, std::vector<Tensor>& t) {
  expect_rounded_operand(ctx,
                         rhn::ForwardStep<Gates, float>{t[0].data<float>(), t[1].data<float>(), t[2].data<float>(),
                                                        t[3].data<float>(), kBatch, kCells, -0.7f},
                         t[3]);
  Tensor gates = t[0].slice(0, kBatch * Gates::kBlocks).reshape({kBatch, Gates::kBlocks * kCells});
  expect_rounded_operand(
      ctx, rhn::BackwardStep<Gates, float>{gates.data<float>(), t[2].data<float>(), t[4].data<float>(), kBatch, kCells},
      gates);
}

TEST_F(RecurrentCuda, KernelsRoundTheirResultsToOperands) {
  for (const char* plugin : {"lstm", "mlstm", "rhn"}) {
    Registry::instance().add_default_directories();
    Registry::instance().find(PluginKind::model, plugin);
  }
  Context ctx;
  compute_on(ctx, {Device::Kind::cuda, 0});
  std::vector<Tensor> t;
  for (const int64_t rows : {4 * kBatch, int64_t{4}, kBatch, kBatch, kBatch})
    t.push_back(ctx.upload(testing::f64_tensor({rows, kCells}, t.size() + 1).to(DType::f32)));
  float *a = t[2].data<float>(), *b = t[3].data<float>(), *c = t[4].data<float>();
  expect_rounded_operand(ctx, mlstm::ProductStep<float>{a, b, c, kBatch, kCells}, t[4]);
  expect_rounded_operand(ctx, mlstm::ProductBackwardStep<float>{a, b, c, kBatch, kCells}, t[3]);
  float *z = t[0].data<float>(), *bias = t[1].data<float>();
  expect_rounded_operand(ctx, LstmForwardStep<float>{z, bias, a, b, c, kBatch, kCells, 1.0f}, t[4]);
  Tensor dc = ctx.zeros({kBatch, kCells});
  expect_rounded_operand(ctx, LstmBackwardStep<float>{z, a, b, c, dc.data<float>(), kBatch, kCells}, t[0]);
  expect_rounded_highways<rhn::Coupled>(ctx, t);
  expect_rounded_highways<rhn::Free>(ctx, t);
}

TEST(Operand, IsNotWrittenByKernelsOfTheCpu) {
  Context ctx;
  ctx.compute = DType::bf16;
  const Tensor value = ctx.zeros({2, 3}), operand = ctx.zeros({2, 3}, DType::bf16);
  EXPECT_EQ(operand_target(ctx, operand).to, nullptr);
  EXPECT_EQ(StepOperands(ctx, value, 1).target(ctx, 0).to, nullptr);
}

TEST_F(RecurrentCuda, RhnLayersEqualTheCpus) {
  expect_equal_highways<rhn::Coupled>();
  expect_equal_highways<rhn::Free>();
}

}  // namespace
}  // namespace lmx
