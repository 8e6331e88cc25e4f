// Export macro and version of the public API (core/include/lmx).
#pragma once

#define LMX_API __attribute__((visibility("default")))

// Functions that CUDA kernels may call as well.
#if defined(__CUDACC__)
#define LMX_HD __host__ __device__
#else
#define LMX_HD
#endif

namespace lmx {

inline constexpr int kAbi = 4;  // increased if plugins of earlier builds must be rebuilt
inline constexpr const char* kVersion = "0.3.0";

}  // namespace lmx
