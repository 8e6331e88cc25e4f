// Arguments of the pointwise kernels of one highway layer.
#pragma once

#include <cstdint>

#include "lmx/kernels.h"

namespace lmx::rhn {

// One highway layer at one step of a batch. A row has G blocks: h and t, and with free gates the carry gate c.
template <class T>
struct ForwardStep {
  static constexpr const char* kName = "rhn_forward";
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
  static constexpr const char* kName = "rhn_backward";
  T* z;        // (B, G H) in: activations; out: gradients of the pre-activations
  const T* s;  // (B, H) the state before the layer
  T* ds;  // (B, H) in: gradient of the state after the layer; out: of the state before it, without the part through z
  int64_t batch, cells;
  bool coupled;
};

}  // namespace lmx::rhn
