// The kernels that attend to stored keys and values on a CUDA device, against the CPU.
#include <gtest/gtest.h>

#include <tuple>

#include "backend/cuda.h"
#include "decoding_kernels.h"
#include "device.h"
#include "lmx/plugin.h"
#include "ops/gradcheck.h"

namespace lmx::transformer {
namespace {

constexpr int64_t kHeads = 3, kSize = 70, kWidth = kHeads * kSize;  // a head has more elements than a block threads

class TransformerCuda : public lmx_test::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    Registry::instance().add_default_directories();
    Registry::instance().find(PluginKind::model, "transformer");
  }
};

template <class T>
Tensor values(const Context& ctx, Shape shape, uint64_t seed) {
  return ctx.upload(testing::f64_tensor(shape, seed).to(dtype_of<T>));
}

// Rows with no keys, with one tile and with several.
template <class T>
std::vector<double> attend_keys(Device::Kind kind) {
  Context ctx = lmx_test::context_on(kind);
  const std::vector<int64_t> begin{0, 0, 1, 65, 215};
  const auto rows = static_cast<int64_t>(begin.size()) - 1;
  const Tensor q = values<T>(ctx, {rows, 3 * kWidth}, 1), stored = values<T>(ctx, {begin.back(), 2 * kWidth}, 2);
  std::vector<const T*> keys;
  for (int64_t i = 0; i < begin.back(); ++i) keys.push_back(stored.data<T>() + (begin.back() - 1 - i) * 2 * kWidth);
  const auto at = ctx.upload(std::move(keys));
  const auto first = ctx.upload(begin);
  Tensor y = ctx.empty({rows, kWidth}, dtype_of<T>);
  run_kernel(ctx, AttendKeys<T>{q.data<T>(), 3 * kWidth, at.data(), first.data(), y.data<T>(), rows, kHeads, kSize});
  return lmx_test::values_of(ctx, y);
}

// Some positions of two rows, one after the other.
template <class T>
std::vector<double> attend_text(Device::Kind kind) {
  Context ctx = lmx_test::context_on(kind);
  const int64_t rows = 2, capacity = 3 * kPanel;
  Tensor keys = ctx.zeros({rows * kHeads * capacity, kSize}, dtype_of<T>);
  Tensor kept = ctx.zeros({rows * kHeads * capacity, kSize}, dtype_of<T>);
  std::vector<double> all;
  for (int64_t length = 0; length < 2 * kPanel + 3; ++length) {
    const Tensor qkv = values<T>(ctx, {rows, 3 * kWidth}, static_cast<uint64_t>(length));
    Tensor y = ctx.empty({rows, kWidth}, dtype_of<T>);
    run_kernel(ctx, AttendText<T>{qkv.data<T>(), keys.data<T>(), kept.data<T>(), y.data<T>(), rows, kHeads, kSize,
                                  length, capacity});
    const std::vector<double> now = lmx_test::values_of(ctx, y);
    all.insert(all.end(), now.begin(), now.end());
  }
  return all;
}

TEST_F(TransformerCuda, AttentionToStoredKeysEqualsTheCpus) {
  using enum Device::Kind;
  lmx_test::expect_close(attend_keys<float>(cuda), attend_keys<float>(cpu), 1e-5);
  lmx_test::expect_close(attend_keys<double>(cuda), attend_keys<double>(cpu), 1e-12);
}

TEST_F(TransformerCuda, AttentionToATextEqualsTheCpus) {
  using enum Device::Kind;
  lmx_test::expect_close(attend_text<float>(cuda), attend_text<float>(cpu), 1e-5);
  lmx_test::expect_close(attend_text<double>(cuda), attend_text<double>(cpu), 1e-12);
}

}  // namespace
}  // namespace lmx::transformer
