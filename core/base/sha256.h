// Bytes as hexadecimal text, and SHA-256 of data that is added in pieces.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace lmx {

// Two lower-case hexadecimal digits for each byte.
std::string hexadecimal(std::string_view bytes);

// SHA-256 of data that is added in pieces.

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256& add(std::string_view bytes);
  std::string digest();  // 64 hexadecimal digits; no data may be added afterwards

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace lmx
