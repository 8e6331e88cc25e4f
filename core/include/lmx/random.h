// Counter-based random numbers (Philox 4x32-10, Salmon et al. 2011).
//
// A random value is a pure function of (key, index): equal for any number of ranks or threads, and without state to
// checkpoint.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "lmx/api.h"

namespace lmx {

// 128 bits of output for a 128-bit counter and a 64-bit key.
LMX_API std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

class LMX_API RandomKey {
 public:
  RandomKey() = default;
  explicit RandomKey(uint64_t seed) : seed_(seed) {}
  // A key for one purpose ("dropout", "init:embedding.weight") or one number (a step, a layer, a seed group).
  RandomKey fold(std::string_view purpose) const;
  RandomKey fold(uint64_t number) const;
  uint64_t bits(uint64_t index) const;               // 64 random bits
  double uniform(uint64_t index) const;              // [0, 1), 53 bits
  double normal(uint64_t index) const;               // standard normal (Box-Muller on one counter)
  uint64_t below(uint64_t index, uint64_t n) const;  // [0, n), by multiply-high (bias below 2^-64 n)
  uint64_t value() const { return seed_; }

 private:
  uint64_t seed_ = 0;
};

// A bijection of [0, n) that `key` selects (Feistel network with cycle walking): a shuffle without memory.
LMX_API uint64_t permute(RandomKey key, uint64_t index, uint64_t n);

}  // namespace lmx
