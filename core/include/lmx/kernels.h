// The kernel table: the function that computes an op for a device and element type.
//
// A kernel gets the Context and one struct of named arguments: sizes, and pointers to memory of the context's device.
// The struct is a template whose last parameter is the element type T. It is declared in X.h, and X.cc, which checks
// shapes, allocates and records, calls run_kernel():
//
//   template <class T>
//   struct LayerNormForward {
//     static constexpr const char* kName = "layer_norm_forward";
//     const T *x, *gain, *bias;
//     ...
//   };
//
// X_cpu.cc has the loops of the CPU and adds them to the table with a KernelAdder; X_cuda.cu does the same for CUDA.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <type_traits>
#include <typeinfo>

#include "lmx/api.h"
#include "lmx/context.h"
#include "lmx/dtype.h"
#include "lmx/tensor.h"

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
template <class Args>
using Kernel = void (*)(Context&, const Args&);

// `args`: the type of a kernel's arguments, which identifies the op and the element type.
LMX_API void add_kernel(const std::type_info& args, Device::Kind device, AnyKernel kernel);
// UserError `[gemm] no CUDA kernel for i64 in this build (input on cuda:0)` if no kernel was added.
LMX_API AnyKernel find_kernel(const std::type_info& args, const char* op, DType type, Device device);

namespace detail {

template <class... Ts>
struct LastOf;
template <class T>
struct LastOf<T> {
  using type = T;
};
template <class T, class... Ts>
struct LastOf<T, Ts...> : LastOf<Ts...> {};

template <class Args>
struct ElementOf;
template <template <class...> class Args, class... Ts>
struct ElementOf<Args<Ts...>> : LastOf<Ts...> {};

}  // namespace detail

// The element type of a kernel's arguments: the last template argument of the struct.
template <class Args>
using Element = typename detail::ElementOf<Args>::type;

// The kernel of Args for a device. UserError if it is missing.
template <class Args>
Kernel<Args> find_kernel(Device device) {
  return reinterpret_cast<Kernel<Args>>(find_kernel(typeid(Args), Args::kName, dtype_of<Element<Args>>, device));
}

namespace detail {

// Notes a kernel of a device that counts, which does not run.
LMX_API void count_kernel(const Context& ctx, const char* op);

// Whether the CPU's kernel of Args allocates memory, which the struct says by `static constexpr bool kAllocatesOnCpu`.
// The kernel is then called on a device that counts, too, and returns after its allocations.
template <class Args>
constexpr bool kAllocatesOnCpu = [] {
  if constexpr (requires { Args::kAllocatesOnCpu; }) return Args::kAllocatesOnCpu;
  return false;
}();

// Whether this thread describes work in place of enqueuing it (replay_steps()), and the description.
LMX_API bool describes_work();
LMX_API void describe_work(const std::type_info& args, const void* bytes, size_t size);

template <class Args>
void describe_work(const Args& args) {
  static_assert(std::is_trivially_copyable_v<Args>, "a kernel's arguments are sizes and pointers");
  Args copy = args;
  // What the padding contains must not decide whether two loops are equal. GCC 12 clears other bytes of large structs.
#if __has_builtin(__builtin_clear_padding)
  if constexpr (sizeof(Args) <= 128) __builtin_clear_padding(&copy);
#endif
  describe_work(typeid(Args), &copy, sizeof copy);
}

}  // namespace detail

// Runs the kernel of Args for ctx.device, which is looked up at the first call only.
template <class Args>
void run_kernel(Context& ctx, const Args& args) {
  if (ctx.device.counts) {
    detail::count_kernel(ctx, Args::kName);
    if (!detail::kAllocatesOnCpu<Args> || ctx.device.kind != Device::Kind::cpu) return;
  }
  if (ctx.device.kind == Device::Kind::cuda && detail::describes_work()) return detail::describe_work(args);
  static std::array<std::atomic<Kernel<Args>>, kDeviceKinds> found{};
  std::atomic<Kernel<Args>>& slot = found[static_cast<size_t>(ctx.device.kind)];
  Kernel<Args> kernel = slot.load(std::memory_order_relaxed);
  if (!kernel) slot.store(kernel = find_kernel<Args>(ctx.device), std::memory_order_relaxed);
  kernel(ctx, args);
}

// Runs `steps`, a loop that only calls kernels and copies within the device, in memory that exists before it. On a CUDA
// device a loop whose work, with all arguments, is that of an earlier loop is replayed as a graph, so that the device
// does not wait for the host between short kernels. For that, `steps` may be called twice. It must use the context that
// it gets. InternalError: the loop or one of its kernels allocates memory of the device, or uses another context.
LMX_API void replay_steps(Context& ctx, const std::function<void(Context&)>& steps);

namespace cuda {

// To be called before work is enqueued on the context's device: selects the device for this thread, and counts the work
// under the name of its op (CudaDevice::counts()). Returns the device's compute capability, 900 for 9.0, or 0 while a
// loop of replay_steps() is captured: in a graph, kernels that start early would only be slower. InternalError: such a
// loop uses another context than the one that it got.
LMX_API int begin_launch(const Context& ctx, const char* op);

}  // namespace cuda

// Adds kernels to the table when the library that contains this object is loaded:
//   const KernelAdder adder(Device::Kind::cpu, forward<float>, forward<double>);
class KernelAdder {
 public:
  template <class... Args>
  explicit KernelAdder(Device::Kind device, Kernel<Args>... kernels) {
    (add_kernel(typeid(Args), device, reinterpret_cast<AnyKernel>(kernels)), ...);
  }
};

}  // namespace lmx
