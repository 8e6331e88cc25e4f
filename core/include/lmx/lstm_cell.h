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

// One step of a batch. A row contains the gate blocks in the order i, f, g, o. T: the value type (f32 or f64).
template <class T>
struct LstmForwardStep {
  static constexpr const char* kName = "lstm_forward";
  static constexpr int64_t kGrain = 4096;
  T* z;           // (B, 4H) in: pre-activations without bias; out: activated gates
  const T* bias;  // (4H)
  const T* c;     // (B, H) the cell before the step
  T* c_next;      // (B, H)
  T* m;           // (B, H) o tanh(c')
  int64_t batch, cells;
  T forget_bias;               // added to the forget gate's pre-activation
  OperandTarget operand = {};  // of m

  LMX_HD void operator()(int64_t row, int64_t j) const {
    const int64_t h = cells, at = row * h + j;
    T* gate = z + row * 4 * h + j;
    const lstm::Gates<T> pre{gate[0] + bias[j], gate[h] + bias[h + j] + forget_bias, gate[2 * h] + bias[2 * h + j],
                             gate[3 * h] + bias[3 * h + j]};
    const lstm::CellOut<T> out = lstm::cell_forward(pre, c[at]);
    gate[0] = out.gates.i;
    gate[h] = out.gates.f;
    gate[2 * h] = out.gates.g;
    gate[3 * h] = out.gates.o;
    c_next[at] = out.c;
    m[at] = out.m;
  }
  LMX_HD void write_operand(int64_t row, int64_t j) const { operand.store(row * cells + j, m[row * cells + j]); }
};

template <class T>
struct LstmBackwardStep {
  static constexpr const char* kName = "lstm_backward";
  static constexpr int64_t kGrain = 4096;
  T* z;             // (B, 4H) in: activated gates; out: gradients of the pre-activations
  const T* c;       // (B, H) the cell before the step
  const T* c_next;  // (B, H)
  const T* dm;      // (B, H)
  T* dc;            // (B, H) in: gradient of the cell after the step; out: of the cell before it
  int64_t batch, cells;
  OperandTarget operand = {};  // of z

  LMX_HD void operator()(int64_t row, int64_t j) const {
    const int64_t h = cells, at = row * h + j;
    T* gate = z + row * 4 * h + j;
    const lstm::CellGrad<T> grad =
        lstm::cell_backward<T>({gate[0], gate[h], gate[2 * h], gate[3 * h]}, c[at], c_next[at], dm[at], dc[at]);
    gate[0] = grad.z.i;
    gate[h] = grad.z.f;
    gate[2 * h] = grad.z.g;
    gate[3 * h] = grad.z.o;
    dc[at] = grad.c;
  }
  LMX_HD void write_operand(int64_t row, int64_t j) const {
    const int64_t first = row * 4 * cells + j;
    for (int64_t gate = 0; gate < 4; ++gate) operand.store(first + gate * cells, z[first + gate * cells]);
  }
};

}  // namespace lmx
