// Pointwise kernels of one highway layer for the kernel table ("rhn_forward", "rhn_backward").
#pragma once

#include <cstdint>

#include "lmx/kernels.h"

namespace lmx::rhn {

// One highway layer at one step of a batch. A row has G blocks: h and t, and with free gates the carry gate c.
template <class T>
struct ForwardStep {
  T* z;           // (B, G H) in: pre-activations without bias; out: activations
  const T* bias;  // (G H)
  const T* s;     // (B, H) the state before the layer
  T* next;        // (B, H)
  int64_t batch, cells;
  bool coupled;
  T transform_bias;  // added to the transform gate's pre-activation
};

template <class T>
struct BackwardStep {
  T* z;        // (B, G H) in: activations; out: gradients of the pre-activations
  const T* s;  // (B, H) the state before the layer
  T* ds;  // (B, H) in: gradient of the state after the layer; out: of the state before it, without the part through z
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
