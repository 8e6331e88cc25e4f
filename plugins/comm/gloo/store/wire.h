// Messages between a rank and the store. A request is a kind, the length of a key and of a value (big-endian), the key
// and the value. The answer to a get is the length of the value and the value; the answer to a set is the length 0.
#pragma once

#include <boost/asio.hpp>
#include <cstdint>

namespace lmx_gloo {

inline constexpr uint32_t kMostKey = 255, kMostValue = 4u << 20;
enum class Request : uint8_t { set = 1, get = 2 };

struct RequestHeader {
  uint8_t kind = 0;
  unsigned char key[4] = {}, value[4] = {};
};
static_assert(sizeof(RequestHeader) == 9);

inline void put(unsigned char (&bytes)[4], uint32_t n) {
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<unsigned char>(n >> (24 - 8 * i));
}
inline uint32_t number(const unsigned char (&bytes)[4]) {
  uint32_t n = 0;
  for (const unsigned char byte : bytes) n = n << 8 | byte;
  return n;
}

}  // namespace lmx_gloo
