#include "lmx/lstm_cell.h"
#include "lmx/pointwise.h"

namespace lmx {
namespace {

const KernelAdder adder = cpu::pointwise<LstmForwardStep, LstmBackwardStep>();

}  // namespace
}  // namespace lmx
