#include "lmx/lstm_cell.cuh"

extern "C" LMX_API void lmx_plugin_cuda() {
  lmx::add_cuda_lstm_kernels();
}
