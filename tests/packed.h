// Compressed text, made without programs that a machine may lack.
#pragma once

#include <zstd.h>

#include <string>

namespace lmx_test {

// One frame.
inline std::string zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

}  // namespace lmx_test
