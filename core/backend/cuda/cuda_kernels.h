// The kernels that liblmx_cuda.so adds to the kernel table.
#pragma once

namespace lmx {

void add_cuda_gemm();

}  // namespace lmx
