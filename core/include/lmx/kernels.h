// The kernel table: the function that computes an op for a device and element type.
//
// The core adds the CPU kernels, liblmx_cuda.so adds its kernels if a device is available, and so does the NAME_cuda.so
// of a plugin. An op looks up its kernel once. Before that, shared code has checked shapes and allocated the output, so
// a kernel gets pointers and sizes.
#pragma once

#include <string>
#include <string_view>

#include "lmx/api.h"
#include "lmx/dtype.h"
#include "lmx/memory.h"

// The compiler clones the function for each instruction set, and one clone is chosen when the program is loaded: the
// baseline is AVX2, the second copy AVX-512. Use it for functions whose loops the compiler vectorises; the functions
// that they call must be inline.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(__CUDACC__)
#define LMX_SIMD  // the resolvers of clones run before a sanitizer is initialised
#else
#define LMX_SIMD __attribute__((target_clones("arch=x86-64-v4", "default")))
#endif

namespace lmx {

using AnyKernel = void (*)();

LMX_API void add_kernel(std::string_view op, Device::Kind device, DType type, AnyKernel kernel);
// Null if no kernel was added for that op, device and type.
LMX_API AnyKernel find_kernel(std::string_view op, Device::Kind device, DType type);
[[noreturn]] LMX_API void missing_kernel(std::string_view op, Device device, DType type);

// kernel<GemmKernel>("gemm", device, type): UserError `[gemm] no CUDA kernel in this build (input on cuda:0)` when
// missing.
template <class Function>
Function kernel(std::string_view op, Device device, DType type) {
  AnyKernel k = find_kernel(op, device.kind, type);
  if (!k) missing_kernel(op, device, type);
  return reinterpret_cast<Function>(k);
}

}  // namespace lmx
