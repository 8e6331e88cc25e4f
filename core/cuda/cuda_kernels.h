// What liblmx_cuda.so adds to the kernel table.
#pragma once

namespace lmx {

void add_cuda_gemm();
void add_cuda_lstm();

}  // namespace lmx
