#include "lmx/lstm_cell.cuh"

namespace lmx {
namespace {

const KernelAdder adder = cuda::lstm_kernels();

}  // namespace
}  // namespace lmx
