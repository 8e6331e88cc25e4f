// Arguments of the kernels of swiglu, see swiglu.cc. The rows of x are `cols` gates, then `cols` values.
#pragma once

#include "lmx/kernels.h"
#include "lmx/math.h"
#include "lmx/operand.h"

namespace lmx::ops {

template <class T>
struct Swiglu {
  static constexpr const char* kName = "swiglu";
  const T* x;  // (rows, 2 cols)
  T* y;        // (rows, cols)
  int64_t rows, cols;
  OperandTarget operand = {};  // of y
};

template <class T>
struct SwigluBackward {
  static constexpr const char* kName = "swiglu_backward";
  const T *x, *dy;
  T* dx;  // (rows, 2 cols)
  int64_t rows, cols;
  OperandTarget operand = {};  // of dx
};

template <class T>
LMX_HD inline T swiglu_value(T gate, T value) {
  return gate * fast_sigmoid(gate) * value;
}

template <class T>
struct SwigluSlopes {
  T gate, value;
};
// The gradients of a gate and its value.
template <class T>
LMX_HD inline SwigluSlopes<T> swiglu_slopes(T gate, T value, T dy) {
  const T s = fast_sigmoid(gate);
  return {dy * value * s * (T(1) + gate * (T(1) - s)), dy * gate * s};
}

}  // namespace lmx::ops
