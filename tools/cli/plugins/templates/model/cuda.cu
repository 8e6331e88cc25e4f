// Built into @name@_cuda.so if nvcc is installed. Without it the model computes on the CPU.
#include "@name@_kernels.h"
#include "lmx/pointwise.cuh"

namespace {

const lmx::KernelAdder adder = lmx::cuda::pointwise<@name@_kernels::GateForward, @name@_kernels::GateBackward>();

}  // namespace
