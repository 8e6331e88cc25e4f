#include "lmx/slot_optimizer.cuh"
#include "optim/update.h"

namespace lmx::optim {
namespace {

const KernelAdder adder = cuda::updates<SgdUpdate, MomentumUpdate, AdagradUpdate, AdamUpdate>();

}  // namespace
}  // namespace lmx::optim
