// The language of CUDA kernels for a C++ compiler: the names that kernels use, and the launch of a kernel, which the
// emulator runs. lmx launches with cudaLaunchKernelEx, because no C++ compiler parses <<<>>>.
//
// Shared memory is dynamic (lmx/cuda_launch.cuh, shared()), so `__shared__` does not exist here. There are no atomics
// on floating-point values: their order would be different in each run.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __align__(n) alignas(n)

struct dim3 {
  unsigned int x = 1, y = 1, z = 1;
  constexpr dim3(unsigned int a = 1, unsigned int b = 1, unsigned int c = 1) : x(a), y(b), z(c) {}
};
struct uint3 {
  unsigned int x, y, z;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
struct alignas(8) uint2 {
  unsigned int x, y;
};
struct alignas(16) uint4 {
  unsigned int x, y, z, w;
};

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
union cudaLaunchAttributeValue {
  int programmaticStreamSerializationAllowed;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned int numAttrs = 0;
};

namespace cuda_emulator {

// The thread that runs now. Kernels run one at a time, so there is one.
struct Place {
  dim3 grid, block;
  uint3 block_index, thread_index;
  void* shared;  // dynamic shared memory of the block
};
extern Place place;

constexpr unsigned int kWarp = 32;

// The calling thread waits until the kernels before this one have ended, which they always have here.
void wait_for_previous_grid();
// Waits for all threads of the block.
void block_barrier();
// block_barrier(), which also counts the threads whose `predicate` is true.
int block_count(bool predicate);
// Waits for the lanes of `mask`, each of which brings `value`, and returns the values of all 32 lanes, which are kept
// until the calling lane waits again.
const std::array<uint64_t, kWarp>& warp_exchange(unsigned int mask, uint64_t value);
// The same for an operation of the lanes of `mask` together: the last of them runs together(values) before any of them
// continues. Each lane usually brings the address of what it contributes and receives. Fault: lanes that meet in
// different operations.
using Together = void (*)(const std::array<uint64_t, kWarp>& values);
void warp_operation(unsigned int mask, uint64_t value, Together together);
// The value of a lane. A lane outside `mask` has none.
[[noreturn]] void no_value(unsigned int lane, unsigned int mask);
unsigned int lane();

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, size_t argument_bytes,
                   std::function<void()> body);
// Fault, if one of the 8-byte values of a kernel's argument is the address of memory that only the host can access.
void check_argument(const void* argument, size_t bytes);
// The same without the bytes between its members, where the address of something else may have been left. `value` is a
// copy, because GCC 12 clears four bytes of other members instead of the padding at the end of a struct with arrays.
template <class Value>
void check_value(Value value) {
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&value);
#endif
  check_argument(&value, sizeof value);
}
// The name of the next kernel that this thread launches, for messages.
void name_next_kernel(const char* name);
// Whether the device refuses every kernel, as one of another architecture does (LMX_EMULATED_ERROR=architecture).
bool kernels_missing();
cudaError_t allow_shared(const void* kernel, int bytes);

template <class T>
T shuffled(unsigned int mask, T value, unsigned int from) {
  static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  const std::array<uint64_t, kWarp>& all = warp_exchange(mask, bits);
  if (!(mask >> from & 1u)) no_value(from, mask);
  T result;
  std::memcpy(&result, &all[from], sizeof result);
  return result;
}

}  // namespace cuda_emulator

inline const uint3& threadIdx = ::cuda_emulator::place.thread_index;
inline const uint3& blockIdx = ::cuda_emulator::place.block_index;
inline const dim3& blockDim = ::cuda_emulator::place.block;
inline const dim3& gridDim = ::cuda_emulator::place.grid;
inline constexpr int warpSize = 32;

inline void cudaTriggerProgrammaticLaunchCompletion() {}
inline void cudaGridDependencySynchronize() {
  ::cuda_emulator::wait_for_previous_grid();
}
inline void __syncthreads() {
  ::cuda_emulator::block_barrier();
}
inline int __syncthreads_count(int predicate) {
  return ::cuda_emulator::block_count(predicate != 0);
}
inline void __syncwarp(unsigned int mask = 0xffffffffu) {
  (void)::cuda_emulator::warp_exchange(mask, 0);
}

template <class T>
T __shfl_xor_sync(unsigned int mask, T value, int lanes, int width = 32) {
  const unsigned int w = static_cast<unsigned int>(width), lane = ::cuda_emulator::lane();
  const unsigned int from = lane ^ static_cast<unsigned int>(lanes);
  return ::cuda_emulator::shuffled(mask, value, from / w > lane / w ? lane : from);
}
template <class T>
T __shfl_down_sync(unsigned int mask, T value, unsigned int lanes, int width = 32) {
  const unsigned int w = static_cast<unsigned int>(width), lane = ::cuda_emulator::lane(), from = lane + lanes;
  return ::cuda_emulator::shuffled(mask, value, from / w != lane / w ? lane : from);
}
inline unsigned int __ballot_sync(unsigned int mask, int predicate) {
  const auto& all = ::cuda_emulator::warp_exchange(mask, predicate != 0);
  unsigned int votes = 0;
  for (unsigned int lane = 0; lane < 32; ++lane)
    if ((mask >> lane & 1u) && all[lane]) votes |= 1u << lane;
  return votes;
}

// Threads of an emulated device run one after the other, so a plain read and write are atomic.
template <class T>
T atomicAdd(T* to, T value) {
  static_assert(std::is_integral_v<T>, "sums of floating-point numbers must not depend on the order of threads");
  const T before = *to;
  *to = static_cast<T>(before + value);
  return before;
}
inline unsigned int __float_as_uint(float x) {
  return std::bit_cast<unsigned int>(x);
}
inline float __uint_as_float(unsigned int x) {
  return std::bit_cast<float>(x);
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  std::tuple<std::decay_t<Parameters>...> values(std::forward<Arguments>(arguments)...);
  std::apply([](auto&... value) { (::cuda_emulator::check_value(value), ...); }, values);
  return ::cuda_emulator::launch(*config, reinterpret_cast<const void*>(kernel),
                                 (std::size_t{0} + ... + sizeof(std::decay_t<Parameters>)),
                                 [kernel, values] { std::apply(kernel, values); });
}
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorInvalidValue;
  return ::cuda_emulator::allow_shared(reinterpret_cast<const void*>(kernel), value);
}
template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel*) {
  *attributes = {};
  return ::cuda_emulator::kernels_missing() ? cudaErrorNoKernelImageForDevice : cudaSuccess;
}

#include "warp_matrix.h"
