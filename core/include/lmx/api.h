// Export macro and version of the public API (core/include/lmx).
#pragma once

#define LMX_API __attribute__((visibility("default")))

namespace lmx {

inline constexpr int kAbi = 2;  // increased if plugins of earlier builds must be rebuilt
inline constexpr const char* kVersion = "0.2.0";

}  // namespace lmx
