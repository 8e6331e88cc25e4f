#include "lmx/pointwise.h"
#include "mlstm_kernels.h"

namespace lmx::mlstm {
namespace {

const KernelAdder adder = cpu::pointwise<ProductStep, ProductBackwardStep>();

}  // namespace
}  // namespace lmx::mlstm
