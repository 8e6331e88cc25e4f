#include "optim/update.h"

namespace lmx::optim {
namespace {

const KernelAdder adder = cpu::updates<SgdUpdate, MomentumUpdate, AdagradUpdate, AdamUpdate, LionUpdate, ScaledCopy,
                                       NormalisedCopy, Combination, MuonMomentum, LambDirection, LambStep, LarsUpdate,
                                       AdafactorMean, AdafactorStep, ScheduleFreeWeight, ScheduleFreeUpdate>();

}  // namespace
}  // namespace lmx::optim
