// The kernels of this model's own op, the gated linear unit y = a sigmoid(b) (Dauphin et al. 2017). Each is written
// once for the CPU and for CUDA (lmx/pointwise.h): @name@.cc adds it for the CPU, @name@_cuda.cu for CUDA.
#pragma once

#include <cstdint>

#include "lmx/kernels.h"
#include "lmx/math.h"

namespace @name@_kernels {

template <class T>
struct GateForward {
  static constexpr const char* kName = "@name@_forward";
  static constexpr int64_t kGrain = 4096;
  const T* x;  // (N, 2H): a, then b
  T* y;        // (N, H)
  int64_t batch, cells;  // N, H

  template <class Lanes>
  LMX_HD void apply(Lanes& lanes, int64_t row, int64_t j) const {
    const T* in = x + row * 2 * cells + j;
    auto a = lanes.load(in);
    const auto b = lanes.load(in + cells);
    for (int e = 0; e < Lanes::kCount; ++e) a[e] *= lmx::fast_sigmoid(b[e]);
    lanes.store(y + row * cells + j, a);
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

  template <class Lanes>
  LMX_HD void apply(Lanes& lanes, int64_t row, int64_t j) const {
    const int64_t at = row * 2 * cells + j;
    auto a = lanes.load(x + at), b = lanes.load(x + at + cells);
    const auto d = lanes.load(dy + row * cells + j);
    for (int e = 0; e < Lanes::kCount; ++e) {
      const T gate = lmx::fast_sigmoid(b[e]), was = a[e];
      a[e] = d[e] * gate;
      b[e] = d[e] * was * gate * (T(1) - gate);
    }
    lanes.store(dx + at, a);
    lanes.store(dx + at + cells, b);
  }
};

}  // namespace @name@_kernels
