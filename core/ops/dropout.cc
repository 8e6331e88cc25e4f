// y_i = x_i / (1 - p) with probability 1 - p, else 0; dx likewise with the same mask.
//
// The mask is a pure function of (key, i) and is drawn again in the backward pass instead of being kept. Elements come
// in groups of 256: element 64 w + l of group g takes word w of Philox block 64 g + l, so that blocks are computed side
// by side and their words leave as whole vectors.
#include "ops/common.h"

namespace lmx {
namespace {

using namespace ops;

constexpr int kLanes = 64, kGroup = 4 * kLanes;
constexpr uint32_t kDomain = 4;  // third counter word: apart from the draws and folds of lmx/random.h

// The words of group g. The same function as lmx::philox (a test holds them together), with the rounds unrolled inside
// the loop over lanes, which is the shape that the compiler vectorises.
inline void group_words(uint64_t key, uint64_t group, uint32_t (&words)[4][kLanes]) {
  const uint64_t first = group * kLanes;  // a multiple of 64: adding a lane never carries
  const auto low = static_cast<uint32_t>(first), high = static_cast<uint32_t>(first >> 32);
  const auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
#pragma omp simd
  for (uint32_t l = 0; l < kLanes; ++l) {
    uint32_t c0 = low + l, c1 = high, c2 = kDomain, c3 = 0, k0 = key0, k1 = key1;
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c1 = static_cast<uint32_t>(p1);
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    words[0][l] = c0;
    words[1][l] = c1;
    words[2][l] = c2;
    words[3][l] = c3;
  }
}

struct Mask {
  uint64_t key;
  uint32_t threshold;  // a word below it drops its element
  double keep_scale;
};

template <class T>
LMX_SIMD void apply_kernel(const T* x, T* y, const Mask& mask, uint64_t first_group, int64_t n) {
  const T scale = static_cast<T>(mask.keep_scale);
  const uint32_t threshold = mask.threshold;
  uint32_t words[4][kLanes];
  for (int64_t begin = 0; begin < n; begin += kGroup, ++first_group) {
    group_words(mask.key, first_group, words);
    const uint32_t* word = &words[0][0];
    const int64_t count = std::min<int64_t>(kGroup, n - begin);
    if (count == kGroup) {
      for (int i = 0; i < kGroup; ++i) y[begin + i] = x[begin + i] * (word[i] < threshold ? T(0) : scale);
    } else {
      for (int64_t i = 0; i < count; ++i) y[begin + i] = x[begin + i] * (word[i] < threshold ? T(0) : scale);
    }
  }
}

Tensor apply(const Tensor& x, const Mask& mask) {
  Tensor y = x.like(MemClass::activations);
  const int64_t n = x.numel(), groups = (n + kGroup - 1) / kGroup;
  with_values("dropout", x, [&](auto zero) {
    using T = decltype(zero);
    const T* px = x.data<T>();
    T* py = y.data<T>();
    parallel_for(groups, kGrain / kGroup / 4, [&](int64_t begin, int64_t end) {
      const int64_t from = begin * kGroup, to = std::min(end * kGroup, n);
      apply_kernel<T>(px + from, py + from, mask, static_cast<uint64_t>(begin), to - from);
    });
  });
  return y;
}

}  // namespace

Var dropout(Context& ctx, const Var& x, double p, RandomKey key) {
  if (!(p >= 0 && p < 1)) throw UserError(str("[dropout] probability ", p, ": must be in [0, 1)"));
  if (!ctx.training || p == 0) return x;
  const Mask mask{key.value(), static_cast<uint32_t>(p * 0x1p32), 1.0 / (1.0 - p)};
  Var out(apply(x.value(), mask));
  if (recording(ctx, {&x})) {
    ctx.tape->record("dropout", {x}, {out},
                     [&ctx, x, out, mask](Tape&) { Tape::accumulate(ctx, x, apply(Tape::grad_of(out), mask)); });
  }
  return out;
}

}  // namespace lmx
