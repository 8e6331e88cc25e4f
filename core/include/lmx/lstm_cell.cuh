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
void lstm_forward(const LstmForwardStep<T>& s) {
  launch_each("lstm_forward", s.batch * s.cells, LstmForwardElement<T>{s});
}

template <class T>
void lstm_backward(const LstmBackwardStep<T>& s) {
  launch_each("lstm_backward", s.batch * s.cells, LstmBackwardElement<T>{s});
}

}  // namespace cuda

// f32 and f64. May be called several times.
inline void add_cuda_lstm_kernels() {
  add_lstm_kernels<float>(Device::Kind::cuda, cuda::lstm_forward<float>, cuda::lstm_backward<float>);
  add_lstm_kernels<double>(Device::Kind::cuda, cuda::lstm_forward<double>, cuda::lstm_backward<double>);
}

}  // namespace lmx
