#include "lmx/slot_optimizer.cuh"
#include "one_bit_adam_kernels.h"

namespace {

const lmx::KernelAdder adder = lmx::cuda::updates<one_bit_adam::Update>();

}  // namespace
