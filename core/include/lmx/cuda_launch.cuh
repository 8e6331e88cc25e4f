// For *_cuda.cu: launches of kernels on the context's stream.
//
// A source file must not use <<<>>>, __shared__ or atomics on floating-point values. Tests compile it a second time, by
// a C++ compiler for an emulated device, which knows none of them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "lmx/error.h"
#include "lmx/kernels.h"

namespace lmx {
namespace cuda {

constexpr int kThreads = 256;

// Blocks, threads of a block, and bytes of a block's shared memory.
struct Grid {
  dim3 blocks, threads = kThreads;
  size_t shared = 0;
};

// `count` as a number of blocks of Grid. InternalError: CUDA launches no more than 2^31 - 1.
inline unsigned blocks_of(int64_t count) {
  LMX_CHECK(count >= 0 && count <= INT32_MAX, "a launch of ", count, " blocks");
  return static_cast<unsigned>(count);
}

// RunError: the message of a device that has failed (docs/errors.md), or else `[op] launch failed: ERROR`.
[[noreturn]] LMX_API void launch_failed(const Context& ctx, const char* op, const char* error);

// The first statement of every kernel. launch() lets a kernel start as soon as all blocks of the kernel before it run,
// so that the device does not wait for the host's launch; here its threads wait until that kernel has ended.
__device__ inline void wait_for_previous() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
#endif
}
// Whether the kernels of this source file that a device of this capability runs, the newest that it supports, wait. Of
// capability 0 there are none.
inline bool kernels_wait(int capability) {
#if defined(__CUDA_ARCH_LIST__)
  for (const int architecture : {__CUDA_ARCH_LIST__})
    if (architecture >= 900 && architecture <= capability) return true;
  return false;
#else
  return capability >= 900;
#endif
}

// Enqueues kernel(arguments...). RunError if CUDA refuses the launch (launch_failed()).
template <class... Parameters, class... Arguments>
void launch(const Context& ctx, const char* op, const Grid& grid, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
#if !defined(__CUDACC__)
  cuda_emulator::name_next_kernel(op);
#endif
  const int capability = begin_launch(ctx, op);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.attrs = &early;
  config.numAttrs = kernels_wait(capability) ? 1 : 0;
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared;
  config.stream = static_cast<cudaStream_t>(ctx.stream);
  const cudaError_t code = cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
  if (code == cudaSuccess) return;
  (void)cudaGetLastError();
  launch_failed(ctx, op, cudaGetErrorString(code));
}

// The block's shared memory (Grid::shared), 16-byte aligned.
template <class T>
__device__ T* shared() {
#if defined(__CUDACC__)
  extern __shared__ __align__(16) unsigned char lmx_shared_memory[];
  return reinterpret_cast<T*>(lmx_shared_memory);
#else
  return static_cast<T*>(cuda_emulator::place.shared);
#endif
}

// The last of `count` ranges of parts that does not begin after `part`. first(k): the first part of range k, ascending.
template <class First>
__device__ int64_t range_of(int64_t part, int64_t count, First first) {
  int64_t k = 0;
  for (int64_t end = count; end - k > 1;) {
    const int64_t middle = k + (end - k) / 2;
    (static_cast<int64_t>(first(middle)) <= part ? k : end) = middle;
  }
  return k;
}

// The row and the column of element i of a matrix.
struct Position {
  int64_t row, column;
};
// REQUIRES: 0 <= i, 0 < columns. A device divides 64-bit integers by some hundred instructions, and 32-bit integers by
// about twenty.
__device__ inline Position position_of(int64_t i, int64_t columns) {
  const int64_t row = (static_cast<uint64_t>(i) | static_cast<uint64_t>(columns)) >> 32 == 0
                          ? static_cast<int64_t>(static_cast<uint32_t>(i) / static_cast<uint32_t>(columns))
                          : i / columns;
  return {row, i - row * columns};
}

template <class Element>
__global__ void each_kernel(int64_t n, Element element) {
  wait_for_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) element(i);
}

}  // namespace cuda

// Runs element(i) for every i of [0, n). Element: a struct of sizes and device pointers with `__device__ void
// operator()(int64_t i) const`. RunError if CUDA refuses the launch.
template <class Element>
void launch_each(const Context& ctx, const char* op, int64_t n, const Element& element) {
  if (n == 0) return;
  const unsigned blocks = cuda::blocks_of((n + cuda::kThreads - 1) / cuda::kThreads);
  cuda::launch(ctx, op, {blocks}, cuda::each_kernel<Element>, n, element);
}

namespace cuda {

constexpr int64_t kTogetherPerBlock = 4 * kThreads;  // elements
constexpr size_t kArgumentBytes = 4096;              // of a kernel, on every device

// The arrays of one launch. Block b serves the last array whose first block is not after b.
template <class Element>
struct Together {
  static constexpr size_t kMost = (kArgumentBytes - sizeof(int64_t)) / (sizeof(Element) + sizeof(uint32_t)) - 1;
  Element elements[kMost];
  uint32_t first_block[kMost];
  int32_t count;
};

template <class Element>
__global__ void each_of_all(Together<Element> all) {
  wait_for_previous();
  const int64_t k = range_of(blockIdx.x, all.count, [&all](int64_t i) { return all.first_block[i]; });
  Element element = all.elements[k];
  if constexpr (requires { element.start(); }) {
    if (!element.start()) return;
  }
  const int64_t n = element.count(), begin = (blockIdx.x - int64_t{all.first_block[k]}) * kTogetherPerBlock;
  const int64_t end = begin + kTogetherPerBlock < n ? begin + kTogetherPerBlock : n;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) element(i);
}

// Runs Element{a}(i) for each `a` of args[0] ... args[count - 1] and every i of [0, Element{a}.count()). Element: as
// for launch_each(), and count() is also a function of the host. Each thread calls `__device__ bool start()` first, if
// Element has it, and ends if it returns false. `args` are in the memory of the host.
template <class Element>
void launch_together(const Context& ctx, const char* op, const decltype(Element::a)* args, int64_t count) {
  using Some = Together<Element>;
  static_assert(sizeof(Some) <= kArgumentBytes);
  for (int64_t done = 0; done < count;) {
    Some some{};
    int64_t blocks = 0;
    while (done < count && some.count < static_cast<int32_t>(Some::kMost)) {
      const Element element{args[done++]};
      some.elements[some.count] = element;
      some.first_block[some.count++] = static_cast<uint32_t>(blocks);
      blocks += (element.count() + kTogetherPerBlock - 1) / kTogetherPerBlock;
    }
    if (blocks > 0) launch(ctx, op, {dim3(blocks_of(blocks))}, each_of_all<Element>, some);
  }
}

// The kernel that runs Element{a}(i) for every i of [0, element.count()), or of [0, a.n) without count(). Its arguments
// are the type of Element's first member `a`.
template <class Element>
void each(Context& ctx, const decltype(Element::a)& a) {
  const Element element{a};
  if constexpr (requires { element.count(); })
    launch_each(ctx, a.kName, element.count(), element);
  else
    launch_each(ctx, a.kName, a.n, element);
}

// Adds these kernels in f32 and f64.
template <template <class> class... Elements>
KernelAdder each_kernels() {
  return KernelAdder(Device::Kind::cuda, each<Elements<float>>..., each<Elements<double>>...);
}

}  // namespace cuda

}  // namespace lmx
