#include "lmx/random.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace lmx {
namespace {

// Counter words 2 and 3 separate the purposes of a counter, so that a sampled number never equals a derived key.
enum Domain : uint32_t { kDraw = 0, kFoldNumber = 1, kFoldText = 2, kFeistel = 3 };

std::array<uint32_t, 4> block(uint64_t seed, uint64_t index, Domain domain, uint32_t extra = 0) {
  return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), domain, extra},
                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

uint64_t join(uint32_t low, uint32_t high) {
  return (static_cast<uint64_t>(high) << 32) | low;
}

double unit(uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// FNV-1a: any fixed 64-bit hash is sufficient, since Philox does the mixing.
uint64_t hash_text(std::string_view text) {
  uint64_t h = 0xCBF29CE484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return h;
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint32_t kMultiply0 = 0xD2511F53u, kMultiply1 = 0xCD9E8D57u, kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMultiply0) * counter[0];
    const uint64_t p1 = static_cast<uint64_t>(kMultiply1) * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

RandomKey RandomKey::fold(std::string_view purpose) const {
  // The length is also part of the counter: two texts share a key only if both their hashes and their lengths are
  // equal.
  const auto b = block(seed_, hash_text(purpose), kFoldText, static_cast<uint32_t>(purpose.size()));
  return RandomKey(join(b[0], b[1]));
}

RandomKey RandomKey::fold(uint64_t number) const {
  const auto b = block(seed_, number, kFoldNumber);
  return RandomKey(join(b[0], b[1]));
}

uint64_t RandomKey::bits(uint64_t index) const {
  const auto b = block(seed_, index, kDraw);
  return join(b[0], b[1]);
}

double RandomKey::uniform(uint64_t index) const {
  return unit(bits(index));
}

double RandomKey::normal(uint64_t index) const {
  const auto b = block(seed_, index, kDraw);
  const double radius = std::sqrt(-2.0 * std::log1p(-unit(join(b[0], b[1]))));  // 1 - u is never 0
  return radius * std::cos(2.0 * std::numbers::pi * unit(join(b[2], b[3])));
}

uint64_t RandomKey::below(uint64_t index, uint64_t n) const {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(bits(index)) * n) >> 64);
}

uint64_t permute(RandomKey key, uint64_t index, uint64_t n) {
  if (n < 2) return index;
  // Two halves of `half` bits cover [0, n). The domain is below 4 n, so the loop takes fewer than four rounds on
  // average.
  const int half = (std::bit_width(n - 1) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  do {
    uint64_t left = index >> half, right = index & mask;
    for (uint32_t round = 0; round < 8; ++round) {
      const auto b = block(key.value(), right, kFeistel, round);
      const uint64_t mixed = left ^ (join(b[0], b[1]) & mask);
      left = right;
      right = mixed;
    }
    index = (left << half) | right;
  } while (index >= n);
  return index;
}

}  // namespace lmx
