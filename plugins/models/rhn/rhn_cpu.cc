#include "lmx/pointwise.h"
#include "rhn_kernels.h"

namespace lmx::rhn {
namespace {

const KernelAdder adder = cpu::pointwise<CoupledForward, CoupledBackward, FreeForward, FreeBackward>();

}  // namespace
}  // namespace lmx::rhn
