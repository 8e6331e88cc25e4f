#include "lmx/lstm_cell.h"
#include "lmx/pointwise.cuh"
#include "mlstm_kernels.h"

namespace lmx::mlstm {
namespace {

const KernelAdder adder = cuda::pointwise<ProductStep, ProductBackwardStep, LstmForwardStep, LstmBackwardStep>();

}  // namespace
}  // namespace lmx::mlstm
