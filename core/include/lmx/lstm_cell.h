// The LSTM cell (Hochreiter and Schmidhuber 1997, with forget gates), for every layer that uses it:
//
//   i, f, o = sigmoid(z_i, z_f, z_o)    g = tanh(z_g)    c' = f c + i g    m = o tanh(c')
//
// This file has the arithmetic and the pointwise kernels of one step (lmx/pointwise.h), whose CPU kernels are in the
// core.
#pragma once

#include <cstdint>

#include "lmx/kernels.h"
#include "lmx/math.h"
#include "lmx/operand.h"

namespace lmx::lstm {

template <class T>
struct Gates {
  T i, f, g, o;
};

template <class T>
struct CellOut {
  Gates<T> gates;
  T c, m;
};

// z: pre-activations, bias included; c: the cell before the step.
template <class T>
LMX_HD inline CellOut<T> cell_forward(Gates<T> z, T c) {
  const T i = fast_sigmoid(z.i), f = fast_sigmoid(z.f), g = fast_tanh(z.g), o = fast_sigmoid(z.o);
  const T next = f * c + i * g;
  return {{i, f, g, o}, next, o * fast_tanh(next)};
}

template <class T>
struct CellGrad {
  Gates<T> z;  // gradients of the pre-activations
  T c;         // of the cell before the step
};

// a: activated gates; before, after: the cell before and after this step; dm, dc: gradients of m and of the cell after
// it.
template <class T>
LMX_HD inline CellGrad<T> cell_backward(Gates<T> a, T before, T after, T dm, T dc) {
  const T tc = fast_tanh(after);
  const T d = dc + dm * a.o * (T(1) - tc * tc);
  return {{d * a.g * a.i * (T(1) - a.i), d * before * a.f * (T(1) - a.f), d * a.i * (T(1) - a.g * a.g),
           dm * tc * a.o * (T(1) - a.o)},
          d * a.f};
}

}  // namespace lmx::lstm

namespace lmx {

// One step of a batch. A row contains the gate blocks in the order i, f, g, o. T: the value type (f32 or f64), S: the
// kept type (lmx/operand.h).
template <class T, class S>
struct LstmForwardStep {
  static constexpr const char* kName = "lstm_forward";
  static constexpr int64_t kGrain = 4096;
  S* gates;       // (B, 4H) in: pre-activations without bias; out: activated gates
  const T* bias;  // (4H)
  const T* c;     // (B, H) the cell before the step
  T* c_next;      // (B, H)
  T* m;           // (B, H) o tanh(c'); null if only its operand is needed
  int64_t batch, cells;
  T forget_bias;               // added to the forget gate's pre-activation
  OperandTarget operand = {};  // of m

  template <class Lanes>
  LMX_HD void apply(Lanes& lanes, int64_t row, int64_t j) const {
    const int64_t h = cells, at = row * h + j, first = row * 4 * h + j;
    auto zi = sum(lanes, first, j), zf = sum(lanes, first + h, h + j), zg = sum(lanes, first + 2 * h, 2 * h + j),
         zo = sum(lanes, first + 3 * h, 3 * h + j);
    auto cell = lanes.load(c + at), out = cell;
    for (int e = 0; e < Lanes::kCount; ++e) {
      const lstm::CellOut<T> next = lstm::cell_forward<T>({zi[e], zf[e] + forget_bias, zg[e], zo[e]}, cell[e]);
      zi[e] = next.gates.i;
      zf[e] = next.gates.f;
      zg[e] = next.gates.g;
      zo[e] = next.gates.o;
      cell[e] = next.c;
      out[e] = next.m;
    }
    lanes.store(gates + first, zi);
    lanes.store(gates + first + h, zf);
    lanes.store(gates + first + 2 * h, zg);
    lanes.store(gates + first + 3 * h, zo);
    lanes.store(c_next + at, cell);
    if (m) lanes.store(m + at, out);
    lanes.store(operand, at, out);
  }

 private:
  template <class Lanes>
  LMX_HD auto sum(Lanes& lanes, int64_t at, int64_t column) const {
    return load_sum(lanes, gates + at, bias + column);
  }
};

template <class T, class S>
struct LstmBackwardStep {
  static constexpr const char* kName = "lstm_backward";
  static constexpr int64_t kGrain = 4096;
  S* gates;         // (B, 4H) in: activated gates; out: gradients of the pre-activations
  const T* c;       // (B, H) the cell before the step
  const T* c_next;  // (B, H)
  const S* dm;      // (B, H)
  T* dc;            // (B, H) in: gradient of the cell after the step; out: of the cell before it
  int64_t batch, cells;

  template <class Lanes>
  LMX_HD void apply(Lanes& lanes, int64_t row, int64_t j) const {
    const int64_t h = cells, at = row * h + j;
    S* gate = gates + row * 4 * h + j;
    auto i = lanes.load(gate), f = lanes.load(gate + h), g = lanes.load(gate + 2 * h), o = lanes.load(gate + 3 * h);
    auto d = lanes.load(dc + at);
    const auto before = lanes.load(c + at), after = lanes.load(c_next + at), slope = lanes.load(dm + at);
    for (int e = 0; e < Lanes::kCount; ++e) {
      const lstm::CellGrad<T> grad =
          lstm::cell_backward<T>({i[e], f[e], g[e], o[e]}, before[e], after[e], slope[e], d[e]);
      i[e] = grad.z.i;
      f[e] = grad.z.f;
      g[e] = grad.z.g;
      o[e] = grad.z.o;
      d[e] = grad.c;
    }
    lanes.store(gate, i);
    lanes.store(gate + h, f);
    lanes.store(gate + 2 * h, g);
    lanes.store(gate + 3 * h, o);
    lanes.store(dc + at, d);
  }
};

}  // namespace lmx
