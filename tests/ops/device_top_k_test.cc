// The most probable entries of rows of logits on a CUDA device: the same as on the CPU, ties included.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "device.h"
#include "ops/losses/top_k.h"

namespace lmx::ops {
namespace {

class DeviceTopK : public lmx_test::DeviceTest {
 protected:
  static std::vector<TopRow> on(Device::Kind kind, const std::vector<float>& values, int64_t n, int64_t k,
                                const std::vector<int32_t>& without) {
    Context ctx = lmx_test::context_on(kind);
    const auto rows = static_cast<int64_t>(values.size()) / n;
    return top_rows(ctx, ctx.upload(Tensor::from<float>(ctx.host, {rows, n}, values)), k, without, 1);
  }
  static void expect_equal(const std::vector<float>& values, int64_t n, int64_t k,
                           const std::vector<int32_t>& without) {
    const auto device = on(Device::Kind::cuda, values, n, k, without),
               cpu = on(Device::Kind::cpu, values, n, k, without);
    ASSERT_EQ(device.size(), cpu.size());
    for (size_t r = 0; r < cpu.size(); ++r) {
      EXPECT_EQ(device[r].wanted, cpu[r].wanted);
      EXPECT_EQ(std::isfinite(device[r].log_sum_exp), std::isfinite(cpu[r].log_sum_exp)) << "row " << r;
      if (std::isfinite(cpu[r].log_sum_exp)) {
        EXPECT_NEAR(device[r].log_sum_exp, cpu[r].log_sum_exp, 1e-5) << "row " << r;
      }
      ASSERT_EQ(device[r].entries.size(), cpu[r].entries.size()) << "row " << r;
      for (size_t e = 0; e < cpu[r].entries.size(); ++e) {
        EXPECT_EQ(device[r].entries[e].logit, cpu[r].entries[e].logit) << r << ' ' << e;
        EXPECT_EQ(device[r].entries[e].id, cpu[r].entries[e].id) << r << ' ' << e;
      }
    }
  }
  // Values of `levels` kinds, so that few levels make many ties.
  static std::vector<float> drawn(int64_t count, int levels) {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<float>(std::floor(RandomKey(3).uniform(static_cast<uint64_t>(i)) * levels)) / 8 - 2);
    return values;
  }
};

TEST_F(DeviceTopK, EqualsTheCpusForFewAndManyTies) {
  for (const int levels : {3, 1'000'000}) {
    expect_equal(drawn(4 * 37, levels), 37, 8, {0});
    expect_equal(drawn(3 * 2500, levels), 2500, 4, {});
    expect_equal(drawn(2 * 5, levels), 5, 9, {1, 3});  // fewer entries than k
  }
}

TEST_F(DeviceTopK, LeavesOutInfiniteValuesAndNaN) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  expect_equal({-kInf, 1, -kInf, 2, -kInf, -kInf, -kInf, -kInf}, 4, 3, {});
  const auto rows = on(Device::Kind::cuda, {0, NAN, 1, kInf, 0, 1}, 3, 1, {});
  for (const TopRow& row : rows) EXPECT_TRUE(std::isnan(row.log_sum_exp));
}

}  // namespace
}  // namespace lmx::ops
