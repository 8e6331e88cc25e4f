// The kernels of this model's own op, the gated linear unit y = a sigmoid(b) (Dauphin et al. 2017). Each is written
// once for the CPU and for CUDA (lmx/pointwise.h): @name@.cc adds it for the CPU, @name@_cuda.cu for CUDA.
#pragma once

#include <cstdint>

#include "lmx/kernels.h"
#include "lmx/math.h"

namespace @name@ {

template <class T>
struct GateForward {
  static constexpr const char* kName = "@name@_forward";
  static constexpr int64_t kGrain = 4096;
  const T* x;  // (N, 2H): a, then b
  T* y;        // (N, H)
  int64_t batch, cells;  // N, H

  LMX_HD void operator()(int64_t row, int64_t j) const {
    const T* in = x + row * 2 * cells + j;
    y[row * cells + j] = in[0] * lmx::fast_sigmoid(in[cells]);
  }
};

template <class T>
struct GateBackward {
  static constexpr const char* kName = "@name@_backward";
  static constexpr int64_t kGrain = 4096;
  const T* x;   // (N, 2H)
  const T* dy;  // (N, H)
  T* dx;        // (N, 2H)
  int64_t batch, cells;

  LMX_HD void operator()(int64_t row, int64_t j) const {
    const int64_t at = row * 2 * cells + j;
    const T gate = lmx::fast_sigmoid(x[at + cells]), d = dy[row * cells + j];
    dx[at] = d * gate;
    dx[at + cells] = d * x[at] * gate * (T(1) - gate);
  }
};

}  // namespace @name@
