// Messages of Protocol Buffers, field by field, for files that other programs read.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace lmx::protobuf {

// Bytes of a number as stored in memory (little endian, as fixed fields require).
template <class T>
std::string fixed(T value) {
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

inline std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

// Wire types: 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes.
inline std::string key(int field, int wire) {
  return varint(static_cast<uint64_t>(field << 3 | wire));
}
// proto3 omits zeros.
inline std::string number_field(int field, int64_t value) {
  return value == 0 ? "" : key(field, 0) + varint(static_cast<uint64_t>(value));
}
// A text, or a message in a message.
inline std::string bytes_field(int field, std::string_view bytes) {
  return key(field, 2) + varint(bytes.size()) + std::string(bytes);
}

}  // namespace lmx::protobuf
