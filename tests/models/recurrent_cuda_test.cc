// The pointwise kernels of the recurrent cells on a CUDA device against the CPU: same source, same numbers up to
// rounding, also where the device keeps gates in the type of products.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

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

constexpr int64_t kBatch = 5;

class RecurrentCuda : public ::testing::TestWithParam<int64_t> {  // cells of a row
 protected:
  void SetUp() override {
    if (load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
    Registry::instance().add_default_directories();
    for (const char* plugin : {"lstm", "mlstm", "rhn"}) Registry::instance().find(PluginKind::model, plugin);
    compute_on(gpu_, {Device::Kind::cuda, 0});
  }

  // (5, columns), and (columns) of them for a bias.
  Tensor values(int64_t columns) { return testing::f64_tensor({kBatch, columns}, ++seed_).to(DType::f32); }

  // Compares the tensors after step(S(), ctx, t) on the device with those after step(float(), ctx, t) on the CPU. The
  // first `kept` tensors have the type S on the device, and the same values in f32 on the CPU.
  template <class S, class Step>
  void expect_equal(const std::vector<Tensor>& given, size_t kept, const Step& step) {
    const double unit = dtype_of<S> == DType::f32 ? 5e-6 : dtype_of<S> == DType::bf16 ? 1.0 / 256 : 1.0 / 2048;
    std::vector<Tensor> want, got;
    for (size_t k = 0; k < given.size(); ++k) {
      const Tensor stored = given[k].to(k < kept ? dtype_of<S> : DType::f32);
      want.push_back(stored.to(DType::f32).clone());
      got.push_back(gpu_.upload(stored));
    }
    step(float(), cpu_, want);
    step(S(), gpu_, got);
    for (size_t k = 0; k < given.size(); ++k) {
      const Tensor here = copy_to(got[k], Allocator::cpu()).to(DType::f32);
      for (int64_t i = 0; i < here.numel(); ++i)
        ASSERT_NEAR(here.data<float>()[i], want[k].data<float>()[i],
                    k < kept ? unit * std::max(1.0f, std::abs(want[k].data<float>()[i])) : 5e-6)
            << name_of(dtype_of<S>) << ", tensor " << k << ", element " << i;
    }
  }
  template <class Step>
  void expect_equal_in_all_types(const std::vector<Tensor>& given, size_t kept, const Step& step) {
    expect_equal<float>(given, kept, step);
    expect_equal<bfloat16>(given, kept, step);
    expect_equal<float16>(given, kept, step);
  }

  // `step` writes `result`, and in the same launch its rounded copy.
  template <class Step>
  void expect_rounded_operand(Step step, const Tensor& result) {
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      const Tensor operand = gpu_.empty(result.shape(), type);
      step.operand = operand_target(gpu_, operand);
      run_kernel(gpu_, step);
      const Tensor got = copy_to(operand, gpu_.host), want = copy_to(result, gpu_.host).to(type);
      EXPECT_EQ(std::memcmp(got.raw(), want.raw(), static_cast<size_t>(want.bytes())), 0)
          << Step::kName << ' ' << name_of(type);
    }
  }

  template <class Gates>
  void expect_equal_highways();

  Context cpu_, gpu_;
  uint64_t seed_ = 0;
};

TEST_P(RecurrentCuda, MlstmProductsEqualTheCpus) {
  const int64_t n = GetParam();
  expect_equal_in_all_types({values(n), values(n), values(n)}, 3, [&](auto kept, Context& ctx, std::vector<Tensor>& t) {
    using S = decltype(kept);
    run_kernel(ctx, mlstm::ProductBackwardStep<float, S>{t[0].data<S>(), t[1].data<S>(), t[2].data<S>(), kBatch, n});
  });
  expect_equal<float>({values(n), values(n), values(n)}, 0, [&](float, Context& ctx, std::vector<Tensor>& t) {
    run_kernel(ctx,
               mlstm::ProductStep<float, float>{t[0].data<float>(), t[1].data<float>(), t[2].data<float>(), kBatch, n});
  });
  // If the kept type differs from the value type, the product is only written as an operand.
  const Tensor a = values(n).to(DType::bf16), b = values(n).to(DType::bf16);
  const Tensor on_gpu = gpu_.upload(a), factor = gpu_.upload(b), product = gpu_.empty(b.shape());
  run_kernel(gpu_, mlstm::ProductStep<float, bfloat16>{on_gpu.data<bfloat16>(), factor.data<bfloat16>(), nullptr,
                                                       kBatch, n, operand_target(gpu_, product)});
  const Tensor got = copy_to(product, gpu_.host);
  for (int64_t i = 0; i < b.numel(); ++i) {
    const float want = static_cast<float>(a.data<bfloat16>()[i]) * static_cast<float>(b.data<bfloat16>()[i]);
    ASSERT_EQ(got.data<float>()[i], want) << i;
  }
}

TEST_P(RecurrentCuda, LstmCellsEqualTheCpus) {
  const int64_t n = GetParam();
  // gates, bias, cell, next cell, output
  for (const bool writes : {true, false}) {
    expect_equal_in_all_types(
        {values(4 * n), values(4 * n), values(n), values(n), values(n)}, 1,
        [&](auto kept, Context& ctx, std::vector<Tensor>& t) {
          using S = decltype(kept);
          run_kernel(
              ctx, LstmForwardStep<float, S>{t[0].data<S>(), t[1].data<float>(), t[2].data<float>(), t[3].data<float>(),
                                             writes ? t[4].data<float>() : nullptr, kBatch, n, 1.0f});
        });
  }
  // gates, gradient of the output, cell, next cell, gradient of the cell
  expect_equal_in_all_types(
      {values(4 * n), values(n), values(n), values(n), values(n)}, 2,
      [&](auto kept, Context& ctx, std::vector<Tensor>& t) {
        using S = decltype(kept);
        run_kernel(ctx, LstmBackwardStep<float, S>{t[0].data<S>(), t[2].data<float>(), t[3].data<float>(),
                                                   t[1].data<S>(), t[4].data<float>(), kBatch, n});
      });
}

template <class Gates>
void RecurrentCuda::expect_equal_highways() {
  const int64_t n = GetParam(), gates = Gates::kBlocks * n;
  // gates, bias, state, next state
  expect_equal_in_all_types(
      {values(gates), values(gates), values(n), values(n)}, 1, [&](auto kept, Context& ctx, std::vector<Tensor>& t) {
        using S = decltype(kept);
        run_kernel(ctx, rhn::ForwardStep<Gates, float, S>{t[0].data<S>(), t[1].data<float>(), t[2].data<float>(),
                                                          t[3].data<float>(), kBatch, n, -0.7f});
      });
  // gates, part of the gradient through them, state, gradients of the state and of the output
  for (const bool has_parts : {true, false}) {
    expect_equal_in_all_types(
        {values(gates), values(n), values(n), values(n), values(n)}, 2,
        [&](auto kept, Context& ctx, std::vector<Tensor>& t) {
          using S = decltype(kept);
          run_kernel(ctx, rhn::BackwardStep<Gates, float, S>{t[0].data<S>(), t[2].data<float>(), t[3].data<float>(),
                                                             has_parts ? t[1].data<S>() : nullptr,
                                                             has_parts ? t[4].data<float>() : nullptr, kBatch, n});
        });
  }
}

TEST_P(RecurrentCuda, RhnLayersEqualTheCpus) {
  expect_equal_highways<rhn::Coupled>();
  expect_equal_highways<rhn::Free>();
}

TEST_P(RecurrentCuda, KernelsRoundTheirResultsToOperands) {
  const int64_t n = GetParam();
  std::vector<Tensor> t;
  for (const int64_t columns : {4 * n, 4 * n, n, n, n}) t.push_back(gpu_.upload(values(columns)));
  float *gates = t[0].data<float>(), *bias = t[1].data<float>(), *a = t[2].data<float>(), *b = t[3].data<float>(),
        *c = t[4].data<float>();
  expect_rounded_operand(mlstm::ProductStep<float, float>{a, b, c, kBatch, n}, t[4]);
  expect_rounded_operand(LstmForwardStep<float, float>{gates, bias, a, b, c, kBatch, n, 1.0f}, t[4]);
  expect_rounded_operand(rhn::ForwardStep<rhn::Coupled, float, float>{gates, bias, a, c, kBatch, n, -0.7f}, t[4]);
  expect_rounded_operand(rhn::ForwardStep<rhn::Free, float, float>{gates, bias, a, c, kBatch, n, -0.7f}, t[4]);
}

INSTANTIATE_TEST_SUITE_P(ByQuads, RecurrentCuda, ::testing::Values(52'432));
INSTANTIATE_TEST_SUITE_P(ByPairs, RecurrentCuda, ::testing::Values(300));
INSTANTIATE_TEST_SUITE_P(OneByOne, RecurrentCuda, ::testing::Values(299));

TEST(Operand, IsNotWrittenByKernelsOfTheCpu) {
  Context ctx;
  ctx.compute = DType::bf16;
  EXPECT_EQ(operand_target(ctx, ctx.zeros({2, 3}, DType::bf16)).to, nullptr);
  EXPECT_EQ(kept_type<float>(ctx), DType::f32);
}

}  // namespace
}  // namespace lmx
