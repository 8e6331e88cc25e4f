#include "app/scores/numpy_random.h"

#include <array>
#include <bit>
#include <cstddef>
#include <vector>

namespace lmx::data {
namespace {

// SeedSequence: hashes the seed's 32-bit words into a pool of four words, and hashes the pool into the generator's
// seed.
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) {
    std::vector<uint32_t> words;
    do words.push_back(static_cast<uint32_t>(seed));
    while ((seed >>= 32) != 0);
    uint32_t constant = 0x43b0d7e5;
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(i < words.size() ? words[i] : 0, constant, 0x931e8875);
    for (size_t from = 0; from < pool_.size(); ++from) {
      for (size_t to = 0; to < pool_.size(); ++to) {
        if (from != to) pool_[to] = mix(pool_[to], hash(pool_[from], constant, 0x931e8875));
      }
    }
  }

  std::array<uint64_t, 4> state() const {
    std::array<uint32_t, 8> words;
    uint32_t constant = 0x8b51f9dd;
    for (size_t i = 0; i < words.size(); ++i) words[i] = hash(pool_[i % pool_.size()], constant, 0x58f38ded);
    std::array<uint64_t, 4> state;
    for (size_t i = 0; i < state.size(); ++i) state[i] = words[2 * i] | static_cast<uint64_t>(words[2 * i + 1]) << 32;
    return state;
  }

 private:
  static uint32_t hash(uint32_t value, uint32_t& constant, uint32_t factor) {
    value ^= constant;
    constant *= factor;
    value *= constant;
    return value ^ value >> 16;
  }
  static uint32_t mix(uint32_t a, uint32_t b) {
    const uint32_t value = 0xca01f9dd * a - 0x4973f715 * b;
    return value ^ value >> 16;
  }

  std::array<uint32_t, 4> pool_{};
};

}  // namespace

NumpyRandom::NumpyRandom(uint64_t seed) {
  const std::array<uint64_t, 4> s = SeedSequence(seed).state();
  increment_ = (static_cast<Wide>(s[2]) << 64 | s[3]) << 1 | 1;
  next64();
  state_ += static_cast<Wide>(s[0]) << 64 | s[1];
  next64();
}

uint64_t NumpyRandom::next64() {
  constexpr Wide kFactor = static_cast<Wide>(0x2360ED051FC65DA4) << 64 | 0x4385DF649FCCF645;
  state_ = state_ * kFactor + increment_;
  return std::rotr(static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_),
                   static_cast<int>(state_ >> 122));
}

uint32_t NumpyRandom::next32() {
  if (has_half_) {
    has_half_ = false;
    return half_;
  }
  const uint64_t both = next64();
  has_half_ = true;
  half_ = static_cast<uint32_t>(both >> 32);
  return static_cast<uint32_t>(both);
}

// Lemire 2019, "Fast random integer generation in an interval".
uint32_t NumpyRandom::below(uint32_t n) {
  if (n == 1) return 0;  // NumPy consumes no random number in this case
  uint64_t product = static_cast<uint64_t>(next32()) * n;
  if (static_cast<uint32_t>(product) < n) {
    const uint32_t threshold = (0 - n) % n;
    while (static_cast<uint32_t>(product) < threshold) product = static_cast<uint64_t>(next32()) * n;
  }
  return static_cast<uint32_t>(product >> 32);
}

bool NumpyRandom::Bits::next() {
  if (left_ == 0) {
    buffer_ = random_.next32();
    left_ = 31;
  } else {
    buffer_ >>= 1;
    --left_;
  }
  return (buffer_ & 1) != 0;
}

}  // namespace lmx::data
