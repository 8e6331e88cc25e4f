// The pointwise kernels of one LSTM step, as the kernel table holds them ("lstm_forward", "lstm_backward").
#pragma once

#include <cstdint>

#include "lmx/kernels.h"

namespace lmx::lstm {

// One step of a batch. Gate blocks of a row lie in the order i, f, g, o. T: the value type (f32 or f64).
template <class T>
struct ForwardStep {
  T* z;           // (B, 4H) in: pre-activations without bias; out: activated gates
  const T* bias;  // (4H)
  const T* c;     // (B, H) the cell before
  T* c_next;      // (B, H)
  T* m;           // (B, H) o tanh(c')
  int64_t batch, cells;
  T forget_bias;  // added to the forget gate's pre-activation
};

template <class T>
struct BackwardStep {
  T* z;             // (B, 4H) in: activated gates; out: gradients of the pre-activations
  const T* c;       // (B, H) the cell before
  const T* c_next;  // (B, H)
  const T* dm;      // (B, H)
  T* dc;            // (B, H) in: gradient of the cell after; out: of the cell before
  int64_t batch, cells;
};

template <class T>
using ForwardKernel = void (*)(const ForwardStep<T>&);
template <class T>
using BackwardKernel = void (*)(const BackwardStep<T>&);

template <class T>
void add_kernels(Device::Kind device, ForwardKernel<T> forward, BackwardKernel<T> backward) {
  add_kernel("lstm_forward", device, dtype_of<T>, reinterpret_cast<AnyKernel>(forward));
  add_kernel("lstm_backward", device, dtype_of<T>, reinterpret_cast<AnyKernel>(backward));
}

void add_cpu_kernels();  // f32 and f64

}  // namespace lmx::lstm
