#include "lmx/lstm_cell.h"
#include "lmx/pointwise.cuh"

namespace lmx {
namespace {

const KernelAdder adder = cuda::pointwise<LstmForwardStep, LstmBackwardStep>();

}  // namespace
}  // namespace lmx
