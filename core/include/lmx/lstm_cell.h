// The LSTM cell (Hochreiter and Schmidhuber 1997, with forget gates; FACTS A5), for every layer that uses it:
//
//   i, f, o = sigmoid(z_i, z_f, z_o)    g = tanh(z_g)    c' = f c + i g    m = o tanh(c')
//
// This file has the arguments of the pointwise kernels of one step, whose CPU kernels are in the core, and the
// arithmetic. The arithmetic is written once, for a float that the CPU compiler vectorises, a double for
// gradient checks, and a float of a CUDA thread.
#pragma once

#include <cstdint>

#include "lmx/kernels.h"
#include "lmx/math.h"

namespace lmx {

// One step of a batch. A row contains the gate blocks in the order i, f, g, o. T: the value type (f32 or f64).
template <class T>
struct LstmForwardStep {
  static constexpr const char* kName = "lstm_forward";
  T* z;           // (B, 4H) in: pre-activations without bias; out: activated gates
  const T* bias;  // (4H)
  const T* c;     // (B, H) the cell before the step
  T* c_next;      // (B, H)
  T* m;           // (B, H) o tanh(c')
  int64_t batch, cells;
  T forget_bias;  // added to the forget gate's pre-activation
};

template <class T>
struct LstmBackwardStep {
  static constexpr const char* kName = "lstm_backward";
  T* z;             // (B, 4H) in: activated gates; out: gradients of the pre-activations
  const T* c;       // (B, H) the cell before the step
  const T* c_next;  // (B, H)
  const T* dm;      // (B, H)
  T* dc;            // (B, H) in: gradient of the cell after the step; out: of the cell before it
  int64_t batch, cells;
};

}  // namespace lmx

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

// Element j of a row of H cells. The gate blocks i, f, g, o have H elements each. z: in, pre-activations without bias;
// out, activated gates.
template <class T>
LMX_HD inline void forward_element(T* z, const T* bias, T c, T* c_next, T* m, int64_t j, int64_t h, T forget_bias) {
  const Gates<T> pre{z[j] + bias[j], z[h + j] + bias[h + j] + forget_bias, z[2 * h + j] + bias[2 * h + j],
                     z[3 * h + j] + bias[3 * h + j]};
  const CellOut<T> out = cell_forward(pre, c);
  z[j] = out.gates.i;
  z[h + j] = out.gates.f;
  z[2 * h + j] = out.gates.g;
  z[3 * h + j] = out.gates.o;
  c_next[j] = out.c;
  m[j] = out.m;
}

// z: in, activated gates; out, gradients of the pre-activations. dc: in, gradient of the cell after the step; out, of
// the cell before it.
template <class T>
LMX_HD inline void backward_element(T* z, T before, T after, T dm, T* dc, int64_t j, int64_t h) {
  const CellGrad<T> g = cell_backward<T>({z[j], z[h + j], z[2 * h + j], z[3 * h + j]}, before, after, dm, dc[j]);
  z[j] = g.z.i;
  z[h + j] = g.z.f;
  z[2 * h + j] = g.z.g;
  z[3 * h + j] = g.z.o;
  dc[j] = g.c;
}

}  // namespace lmx::lstm
