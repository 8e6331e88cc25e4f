// The pointwise kernels of one LSTM step, as the kernel table holds them ("lstm_forward", "lstm_backward"), for every
// layer whose cell is an LSTM's (Hochreiter and Schmidhuber 1997, with forget gates; FACTS A5):
//
//   i, f, o = sigmoid(z_i, z_f, z_o)    g = tanh(z_g)    c' = f c + i g    m = o tanh(c')
#pragma once

#include <cstdint>

#include "lmx/kernels.h"

namespace lmx {

// One step of a batch. Gate blocks of a row lie in the order i, f, g, o. T: the value type (f32 or f64).
template <class T>
struct LstmForwardStep {
  T* z;           // (B, 4H) in: pre-activations without bias; out: activated gates
  const T* bias;  // (4H)
  const T* c;     // (B, H) the cell before
  T* c_next;      // (B, H)
  T* m;           // (B, H) o tanh(c')
  int64_t batch, cells;
  T forget_bias;  // added to the forget gate's pre-activation
};

template <class T>
struct LstmBackwardStep {
  T* z;             // (B, 4H) in: activated gates; out: gradients of the pre-activations
  const T* c;       // (B, H) the cell before
  const T* c_next;  // (B, H)
  const T* dm;      // (B, H)
  T* dc;            // (B, H) in: gradient of the cell after; out: of the cell before
  int64_t batch, cells;
};

template <class T>
using LstmForwardKernel = void (*)(const LstmForwardStep<T>&);
template <class T>
using LstmBackwardKernel = void (*)(const LstmBackwardStep<T>&);

// Adds the CPU's, f32 and f64, to the table; any number of times. CUDA's come with liblmx_cuda.so.
LMX_API void add_lstm_kernels();

}  // namespace lmx
