// CUDA kernels of the LSTM cell, for the *_cuda.cu of every plugin whose layer uses them: the functions of
// lmx/lstm_cell.h with one thread for each element (b, j).
#pragma once

#include "lmx/cuda_launch.cuh"
#include "lmx/lstm_cell.h"

namespace lmx {
namespace cuda {

template <class T>
struct LstmForwardElement {
  LstmForwardStep<T> s;
  __device__ void operator()(int64_t e) const {
    const int64_t row = e / s.cells, h = s.cells;
    lstm::forward_element(s.z + row * 4 * h, s.bias, s.c[e], s.c_next + row * h, s.m + row * h, e % h, h,
                          s.forget_bias);
  }
};

template <class T>
struct LstmBackwardElement {
  LstmBackwardStep<T> s;
  __device__ void operator()(int64_t e) const {
    const int64_t row = e / s.cells, h = s.cells;
    lstm::backward_element(s.z + row * 4 * h, s.c[e], s.c_next[e], s.dm[e], s.dc + row * h, e % h, h);
  }
};

template <class T>
void lstm_forward(Context&, const LstmForwardStep<T>& s) {
  launch_each("lstm_forward", s.batch * s.cells, LstmForwardElement<T>{s});
}

template <class T>
void lstm_backward(Context&, const LstmBackwardStep<T>& s) {
  launch_each("lstm_backward", s.batch * s.cells, LstmBackwardElement<T>{s});
}

// For a constant in a plugin's *_cuda.cu: const KernelAdder adder = cuda::lstm_kernels();
inline KernelAdder lstm_kernels() {
  return KernelAdder(Device::Kind::cuda, lstm_forward<float>, lstm_forward<double>, lstm_backward<float>,
                     lstm_backward<double>);
}

}  // namespace cuda

}  // namespace lmx
