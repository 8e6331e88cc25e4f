// Attention of single positions to stored keys and values (lmx/decoding.h) on a CUDA device, against the CPU.
#include "device.h"
#include "lmx/decoding.h"
#include "ops/device_values.h"

namespace lmx::testing {
namespace {

constexpr int64_t kHeads = 3, kSize = 70, kWidth = kHeads * kSize;  // a head has more elements than a block threads

class DeviceDecoding : public lmx_test::DeviceTest {};

// Rows with no keys, with one tile and with several.
std::vector<double> attend_keys(Device::Kind kind, DType type) {
  Context ctx = lmx_test::context_on(kind);
  const std::vector<int64_t> begin{0, 0, 1, 65, 215};
  const auto rows = static_cast<int64_t>(begin.size()) - 1;
  const Tensor q = ctx.upload(f64_tensor({rows, 3 * kWidth}, 1).to(type));
  const Tensor stored = ctx.upload(f64_tensor({begin.back(), 2 * kWidth}, 2).to(type));
  std::vector<const void*> keys;
  for (int64_t i = 0; i < begin.back(); ++i) keys.push_back(stored.slice(begin.back() - 1 - i, begin.back()).raw());
  return lmx_test::values_of(ctx, attend_to_keys(ctx, q, kHeads, kSize, std::move(keys), begin));
}

// Some positions of two texts, the first 67 at once or each alone; in the middle the texts are exchanged.
std::vector<double> attend_text(Device::Kind kind, DType type, int64_t heads, uint64_t first) {
  Context ctx = lmx_test::context_on(kind);
  TextCache cache(ctx, {2, heads, kHeads, kSize}, 2, type);
  std::vector<double> all;
  for (uint64_t length = 0; length < 131; length += length == 0 ? first : 1) {
    const int64_t positions = length == 0 ? static_cast<int64_t>(first) : 1;
    const Tensor qkv = ctx.upload(f64_tensor({2 * positions, (heads + 2 * kHeads) * kSize}, length).to(type));
    const std::vector<double> now = lmx_test::values_of(ctx, cache.attend(ctx, 1, qkv));
    all.insert(all.end(), now.begin(), now.end());
    if (length == 70) cache.select(ctx, std::vector<int64_t>{1, 0});
  }
  return all;
}

TEST_F(DeviceDecoding, AttentionToStoredKeysEqualsTheCpus) {
  using enum Device::Kind;
  for (const auto& [type, limit] : {std::pair{DType::f32, 1e-5}, std::pair{DType::f64, 1e-12}})
    lmx_test::expect_close(attend_keys(cuda, type), attend_keys(cpu, type), limit);
}

TEST_F(DeviceDecoding, AttentionToATextEqualsTheCpus) {
  using enum Device::Kind;
  for (const int64_t heads : {kHeads, 2 * kHeads})
    for (const uint64_t first : {1, 67})
      for (const auto& [type, limit] : {std::pair{DType::f32, 1e-5}, std::pair{DType::f64, 1e-12}})
        lmx_test::expect_close(attend_text(cuda, type, heads, first), attend_text(cpu, type, heads, first), limit);
}

}  // namespace
}  // namespace lmx::testing
