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

// T: the value type, S: the kept type (lmx/operand.h).
template <class Gates, class T, class S>
struct ForwardStep {
  static constexpr const char* kName = "rhn_forward";
  static constexpr int64_t kGrain = 4096;
  S* gates;       // (B, G H) in: pre-activations without bias; out: activations
  const T* bias;  // (G H)
  const T* s;     // (B, H) the state before the layer
  T* next;        // (B, H)
  int64_t batch, cells;
  // Added to the transform gate's pre-activation. The constant of a free carry gate is its negative, so that both gates
  // start as coupled ones.
  T transform_bias;
  OperandTarget operand = {};  // of next

  template <class Lanes>
  LMX_HD void apply(Lanes& lanes, int64_t row, int64_t j) const {
    const int64_t n = cells, at = row * n + j, first = row * Gates::kBlocks * n + j;
    auto h = sum(lanes, first, j), t = sum(lanes, first + n, n + j), c = t;
    auto state = lanes.load(s + at);
    if constexpr (Gates::kBlocks == 3) c = sum(lanes, first + 2 * n, 2 * n + j);
    for (int e = 0; e < Lanes::kCount; ++e) {
      h[e] = fast_tanh(h[e]);
      t[e] = fast_sigmoid(t[e] + transform_bias);
      c[e] = Gates::kBlocks == 3 ? fast_sigmoid(c[e] - transform_bias) : T(1) - t[e];
      state[e] = h[e] * t[e] + state[e] * c[e];
    }
    lanes.store(gates + first, h);
    lanes.store(gates + first + n, t);
    if constexpr (Gates::kBlocks == 3) lanes.store(gates + first + 2 * n, c);
    lanes.store(next + at, state);
    lanes.store(operand, at, state);
  }

 private:
  template <class Lanes>
  LMX_HD auto sum(Lanes& lanes, int64_t at, int64_t column) const {
    return load_sum(lanes, gates + at, bias + column);
  }
};

template <class Gates, class T, class S>
struct BackwardStep {
  static constexpr const char* kName = "rhn_backward";
  static constexpr int64_t kGrain = 4096;
  S* gates;    // (B, G H) in: activations; out: gradients of the pre-activations
  const T* s;  // (B, H) the state before the layer
  T* ds;       // (B, H) in: gradient of the state after the layer, without the two following parts; out: of the state
               // before it, without the part through this layer's pre-activations
  const S* more;  // (B, H) the part through the pre-activations of the layer after this one; null: ds contains it
  const T* dy;    // (B, H) the part through the output of the step; null: none
  int64_t batch, cells;

  template <class Lanes>
  LMX_HD void apply(Lanes& lanes, int64_t row, int64_t j) const {
    const int64_t n = cells, at = row * n + j, first = row * Gates::kBlocks * n + j;
    auto h = lanes.load(gates + first), t = lanes.load(gates + first + n), c = t;
    auto d = load_sum(lanes, ds + at, more ? more + at : nullptr);
    if (dy) {
      const auto from_output = lanes.load(dy + at);
      for (int e = 0; e < Lanes::kCount; ++e) d[e] += from_output[e];
    }
    const auto before = lanes.load(s + at);
    if constexpr (Gates::kBlocks == 3) c = lanes.load(gates + first + 2 * n);
    for (int e = 0; e < Lanes::kCount; ++e) {
      const T slope = d[e], was_h = h[e], was_t = t[e];
      h[e] = slope * was_t * (T(1) - was_h * was_h);
      if constexpr (Gates::kBlocks == 2) {
        t[e] = slope * (was_h - before[e]) * was_t * (T(1) - was_t);
        d[e] = slope * (T(1) - was_t);
      } else {
        const T was_c = c[e];
        t[e] = slope * was_h * was_t * (T(1) - was_t);
        c[e] = slope * before[e] * was_c * (T(1) - was_c);
        d[e] = slope * was_c;
      }
    }
    lanes.store(gates + first, h);
    lanes.store(gates + first + n, t);
    if constexpr (Gates::kBlocks == 3) lanes.store(gates + first + 2 * n, c);
    lanes.store(ds + at, d);
  }
};

template <class T, class S>
using CoupledForward = ForwardStep<Coupled, T, S>;
template <class T, class S>
using CoupledBackward = BackwardStep<Coupled, T, S>;
template <class T, class S>
using FreeForward = ForwardStep<Free, T, S>;
template <class T, class S>
using FreeBackward = BackwardStep<Free, T, S>;

}  // namespace lmx::rhn
