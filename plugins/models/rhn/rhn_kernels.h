// The pointwise kernels of one highway layer, as the kernel table holds them ("rhn_forward", "rhn_backward").
#pragma once

#include <cstdint>

#include "lmx/kernels.h"

namespace lmx::rhn {

// One highway layer at one step of a batch. G: 2 blocks h, t of a row, or 3 with the carry gate c.
template <class T>
struct ForwardStep {
  T* z;           // (B, G H) in: pre-activations without bias; out: activations
  const T* bias;  // (G H)
  const T* s;     // (B, H) the state before
  T* next;        // (B, H)
  int64_t batch, cells;
  bool coupled;
  T transform_bias;  // added to the transform gate's pre-activation
};

template <class T>
struct BackwardStep {
  T* z;        // (B, G H) in: activations; out: gradients of the pre-activations
  const T* s;  // (B, H) the state before
  T* ds;       // (B, H) in: gradient of the state after; out: of the state before, what goes through z left out
  int64_t batch, cells;
  bool coupled;
};

template <class T>
using ForwardKernel = void (*)(const ForwardStep<T>&);
template <class T>
using BackwardKernel = void (*)(const BackwardStep<T>&);

template <class T>
void add_kernels(Device::Kind device, ForwardKernel<T> forward, BackwardKernel<T> backward) {
  add_kernel("rhn_forward", device, dtype_of<T>, reinterpret_cast<AnyKernel>(forward));
  add_kernel("rhn_backward", device, dtype_of<T>, reinterpret_cast<AnyKernel>(backward));
}

void add_cpu_kernels();  // f32 and f64

}  // namespace lmx::rhn
