// The kernels of this optimizer for CUDA.
#include "@name@_kernels.h"
#include "lmx/slot_optimizer.cuh"

namespace {

const lmx::KernelAdder adder = lmx::cuda::updates<@name@_kernels::Update>();

}  // namespace
