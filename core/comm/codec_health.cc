// What encoding lost, counted beside the encoding.
#include <cmath>
#include <vector>

#include "comm/codecs.h"
#include "lmx/kernels.h"
#include "lmx/parallel.h"

namespace lmx::comm {
namespace {

constexpr int64_t kBlock = 4096;
constexpr int kLanes = 16;  // sums side by side, which lets the compiler vectorise them without reordering

struct Counts {
  int32_t underflow[kLanes] = {}, overflow[kLanes] = {};
  float error[kLanes] = {}, norm[kLanes] = {};
};

// At most kBlock values, so that f32 sums and i32 counts suffice.
LMX_SIMD void compare(const float* before, const float* after, float* residual, int64_t n, Counts& total) {
  Counts c;
  for (int64_t i = 0; i < n; i += kLanes) {
    float b[kLanes] = {}, a[kLanes] = {};
    const int64_t m = n - i < kLanes ? n - i : kLanes;
    for (int64_t k = 0; k < m; ++k) b[k] = before[i + k], a[k] = after[i + k];
    for (int k = 0; k < kLanes; ++k) {
      const bool finite = std::abs(a[k]) < INFINITY && std::abs(b[k]) < INFINITY;
      c.underflow[k] += b[k] != 0 && a[k] == 0;
      c.overflow[k] += !(std::abs(a[k]) < INFINITY);
      const float value = finite ? b[k] : 0.0f, lost = finite ? b[k] - a[k] : 0.0f;
      c.error[k] += lost * lost;
      c.norm[k] += value * value;
      b[k] = lost;
    }
    if (residual)
      for (int64_t k = 0; k < m; ++k) residual[i + k] = b[k];
  }
  total = c;
}

void add_to(CodecHealth& health, const Counts& c) {
  for (int k = 0; k < kLanes; ++k) {
    health.underflow += c.underflow[k];
    health.overflow += c.overflow[k];
    health.error += static_cast<double>(c.error[k]);
    health.norm += static_cast<double>(c.norm[k]);
  }
}

}  // namespace

void account(const Codec& codec, const float* values, int64_t rows, int64_t width, const std::byte* encoded,
             CodecHealth& health, float* residual) {
  const int64_t n = rows * width, blocks = (n + kBlock - 1) / kBlock;
  if (n == 0) return;
  std::vector<float> whole;
  if (!codec.elementwise()) {
    whole.resize(static_cast<size_t>(n));
    codec.decode(encoded, rows, width, whole.data());
  }
  const int64_t size = codec.bytes(1, 1);
  std::vector<Counts> counts(static_cast<size_t>(blocks));
  parallel_for(blocks, 8, [&](int64_t first, int64_t last) {
    std::vector<float> part(codec.elementwise() ? kBlock : 0);
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * kBlock, m = std::min(kBlock, n - begin);
      const float* decoded = whole.data() + begin;
      if (codec.elementwise()) {
        codec.decode(encoded + begin * size, m, 1, part.data());
        decoded = part.data();
      }
      compare(values + begin, decoded, residual ? residual + begin : nullptr, m, counts[static_cast<size_t>(block)]);
    }
  });
  health.values += n;
  for (const Counts& c : counts) add_to(health, c);
}

}  // namespace lmx::comm
