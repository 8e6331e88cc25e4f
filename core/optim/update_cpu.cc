#include "optim/update.h"

namespace lmx::optim {
namespace {

const KernelAdder adder = cpu::updates<SgdUpdate, MomentumUpdate, AdagradUpdate, AdamUpdate>();

}  // namespace
}  // namespace lmx::optim
