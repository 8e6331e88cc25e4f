// The pointwise kernels of one highway layer at one step of a batch (lmx/pointwise.h; Zilly et al. 2016, equations 6 to
// 9):
//
//   h = tanh(z_h)    t = sigmoid(z_t)    s' = h t + s c    c = 1 - t if gates are coupled, else sigmoid(z_c)
#pragma once

#include <cstdint>

#include "lmx/kernels.h"
#include "lmx/math.h"
#include "lmx/operand.h"

namespace lmx::rhn {

// The gate blocks of a row: h and t, and with free gates the carry gate c.
struct Coupled {
  static constexpr int64_t kBlocks = 2;
};
struct Free {
  static constexpr int64_t kBlocks = 3;
};

template <class Gates, class T>
struct ForwardStep {
  static constexpr const char* kName = "rhn_forward";
  static constexpr int64_t kGrain = 4096;
  T* z;           // (B, G H) in: pre-activations without bias; out: activations
  const T* bias;  // (G H)
  const T* s;     // (B, H) the state before the layer
  T* next;        // (B, H)
  int64_t batch, cells;
  // Added to the transform gate's pre-activation. The constant of a free carry gate is its negative, so that both gates
  // start as coupled ones.
  T transform_bias;
  OperandTarget operand = {};  // of next

  LMX_HD void operator()(int64_t row, int64_t j) const {
    const int64_t n = cells, at = row * n + j;
    T* gate = z + row * Gates::kBlocks * n + j;
    const T h = fast_tanh(gate[0] + bias[j]), t = fast_sigmoid(gate[n] + bias[n + j] + transform_bias);
    T c = T(1) - t;
    if constexpr (Gates::kBlocks == 3) {
      c = fast_sigmoid(gate[2 * n] + bias[2 * n + j] - transform_bias);
      gate[2 * n] = c;
    }
    gate[0] = h;
    gate[n] = t;
    next[at] = h * t + s[at] * c;
  }
  LMX_HD void write_operand(int64_t row, int64_t j) const { operand.store(row * cells + j, next[row * cells + j]); }
};

template <class Gates, class T>
struct BackwardStep {
  static constexpr const char* kName = "rhn_backward";
  static constexpr int64_t kGrain = 4096;
  T* z;        // (B, G H) in: activations; out: gradients of the pre-activations
  const T* s;  // (B, H) the state before the layer
  T* ds;  // (B, H) in: gradient of the state after the layer; out: of the state before it, without the part through z
  int64_t batch, cells;
  OperandTarget operand = {};  // of z

  LMX_HD void operator()(int64_t row, int64_t j) const {
    const int64_t n = cells, at = row * n + j;
    T* gate = z + row * Gates::kBlocks * n + j;
    const T h = gate[0], t = gate[n], d = ds[at];
    gate[0] = d * t * (T(1) - h * h);
    if constexpr (Gates::kBlocks == 2) {
      gate[n] = d * (h - s[at]) * t * (T(1) - t);
      ds[at] = d * (T(1) - t);
    } else {
      const T c = gate[2 * n];
      gate[n] = d * h * t * (T(1) - t);
      gate[2 * n] = d * s[at] * c * (T(1) - c);
      ds[at] = d * c;
    }
  }
  LMX_HD void write_operand(int64_t row, int64_t j) const {
    const int64_t first = row * Gates::kBlocks * cells + j;
    for (int64_t gate = 0; gate < Gates::kBlocks; ++gate) operand.store(first + gate * cells, z[first + gate * cells]);
  }
};

template <class T>
using CoupledForward = ForwardStep<Coupled, T>;
template <class T>
using CoupledBackward = BackwardStep<Coupled, T>;
template <class T>
using FreeForward = ForwardStep<Free, T>;
template <class T>
using FreeBackward = BackwardStep<Free, T>;

}  // namespace lmx::rhn
