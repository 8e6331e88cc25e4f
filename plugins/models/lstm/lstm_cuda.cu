#include "lmx/cuda_launch.cuh"
#include "lmx/lstm_cell.h"

namespace lmx {
namespace {

const KernelAdder adder = cuda::pointwise<LstmForwardStep, LstmBackwardStep>();

}  // namespace
}  // namespace lmx
