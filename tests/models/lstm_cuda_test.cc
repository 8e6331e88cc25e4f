// The pointwise functor on a CUDA device against the CPU: same source, same numbers up to rounding.
#include <gtest/gtest.h>

#include "backend/cuda.h"
#include "lmx/kernels.h"
#include "lmx/lstm_cell.h"
#include "lmx/plugin.h"
#include "ops/gradcheck.h"

namespace lmx::lstm {
namespace {

TEST(LstmCuda, PointwiseKernelsEqualTheCpus) {
  if (load_cuda() == 0) GTEST_SKIP() << "no CUDA device answers";
  Registry::instance().add_default_directories();
  Registry::instance().find(PluginKind::model, "lstm");
  const int64_t batch = 5, cells = 300;
  const auto gpu = cuda_device(0).memory(), cpu = Allocator::cpu();
  const auto values = [](Shape shape, uint64_t seed) { return lmx::testing::f64_tensor(shape, seed).to(DType::f32); };
  const Tensor bias = values({4 * cells}, 1), c = values({batch, cells}, 2), dm = values({batch, cells}, 3);
  // Runs a forward and a backward step where `a` allocates, and brings z, c', m and dc back.
  const auto run = [&](const std::shared_ptr<Allocator>& a) {
    const auto here = [&](const Tensor& t) { return copy_to(t, a); };
    Context ctx;
    compute_on(ctx, a->device());
    Tensor z = here(values({batch, 4 * cells}, 4)), next = here(c), m = here(c), dc = here(values({batch, cells}, 5));
    Tensor bias_here = here(bias), c_here = here(c), dm_here = here(dm);
    run_kernel(ctx, LstmForwardStep<float>{z.data<float>(), bias_here.data<float>(), c_here.data<float>(),
                                           next.data<float>(), m.data<float>(), batch, cells, 1.f});
    run_kernel(ctx, LstmBackwardStep<float>{z.data<float>(), c_here.data<float>(), next.data<float>(),
                                            dm_here.data<float>(), dc.data<float>(), batch, cells});
    return std::vector<Tensor>{copy_to(z, cpu), copy_to(next, cpu), copy_to(m, cpu), copy_to(dc, cpu)};
  };
  const std::vector<Tensor> want = run(cpu), got = run(gpu);
  for (size_t k = 0; k < want.size(); ++k) {
    for (int64_t i = 0; i < want[k].numel(); ++i) {
      ASSERT_NEAR(got[k].data<float>()[i], want[k].data<float>()[i], 2e-6) << k << ' ' << i;
    }
  }
}

}  // namespace
}  // namespace lmx::lstm
