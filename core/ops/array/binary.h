// Arithmetic of two operands and the arguments of its kernels, see binary.cc. A function has a value(a, b), and the
// contributions da and db of g = dy to the gradients of a and b.
#pragma once

#include <type_traits>

#include "lmx/kernels.h"
#include "lmx/math.h"
#include "ops/array/broadcast.h"

namespace lmx::ops {

struct Add {
  static constexpr const char* kName = "add";
  static constexpr bool kKeepsSlope = true;  // da is dy itself
  template <class T>
  LMX_HD static T value(T a, T b) {
    return a + b;
  }
  template <class T>
  LMX_HD static T db(T, T, T g) {
    return g;
  }
};
struct Subtract {
  static constexpr const char* kName = "subtract";
  static constexpr bool kKeepsSlope = true;
  template <class T>
  LMX_HD static T value(T a, T b) {
    return a - b;
  }
  template <class T>
  LMX_HD static T db(T, T, T g) {
    return -g;
  }
};
struct Multiply {
  static constexpr const char* kName = "multiply";
  static constexpr bool kKeepsSlope = false;
  template <class T>
  LMX_HD static T value(T a, T b) {
    return a * b;
  }
  template <class T>
  LMX_HD static T da(T, T b, T g) {
    return g * b;
  }
  template <class T>
  LMX_HD static T db(T a, T, T g) {
    return g * a;
  }
};
struct Divide {
  static constexpr const char* kName = "divide";
  static constexpr bool kKeepsSlope = false;
  template <class T>
  LMX_HD static T value(T a, T b) {
    return a / b;
  }
  template <class T>
  LMX_HD static T da(T, T b, T g) {
    return g / b;
  }
  template <class T>
  LMX_HD static T db(T a, T b, T g) {
    return -g * (a / b) / b;
  }
};

// y = f(a, b). The walk has the positions of a and b.
template <class F, class T>
struct Binary {
  static constexpr const char* kName = F::kName;
  const T *a, *b;
  T* y;  // (n)
  Walk<2> walk;
  int64_t n;
};

// The gradient of the first operand, or of the second one, before it is summed where that operand repeats.
template <class F, class First, class T>  // First: std::true_type or std::false_type
struct BinaryBackward {
  static constexpr const char* kName = F::kName;
  const T *a, *b;
  const T* dy;  // (n)
  T* dx;        // (n)
  Walk<2> walk;
  int64_t n;
};

}  // namespace lmx::ops
