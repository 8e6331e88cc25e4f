// The pointwise kernels of the multiplicative LSTM and the recurrent highway network on a CUDA device against the CPU:
// same source, same numbers up to rounding.
#include <gtest/gtest.h>

#include <functional>

#include "backend/cuda.h"
#include "lmx/kernels.h"
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

TEST_F(RecurrentCuda, RhnLayersEqualTheCpus) {
  expect_equal_highways<rhn::Coupled>();
  expect_equal_highways<rhn::Free>();
}

}  // namespace
}  // namespace lmx
