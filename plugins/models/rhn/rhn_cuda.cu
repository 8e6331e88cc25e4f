#include "lmx/pointwise.cuh"
#include "rhn_kernels.h"

namespace lmx::rhn {
namespace {

const KernelAdder adder = cuda::pointwise<CoupledForward, CoupledBackward, FreeForward, FreeBackward>();

}  // namespace
}  // namespace lmx::rhn
