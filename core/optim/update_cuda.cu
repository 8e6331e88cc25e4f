#include "lmx/slot_optimizer.cuh"
#include "optim/update.h"

namespace lmx::optim {
namespace {

const KernelAdder adder = cuda::updates<SgdUpdate, MomentumUpdate, AdagradUpdate, AdamUpdate, LionUpdate, ScaledCopy,
                                        NormalisedCopy, Combination, MuonMomentum, LambDirection, LambStep, LarsUpdate,
                                        AdafactorMean, AdafactorStep, ScheduleFreeWeight, ScheduleFreeUpdate>();

}  // namespace
}  // namespace lmx::optim
