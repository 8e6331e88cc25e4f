// Elementwise functions and the arguments of their kernels, see elementwise.cc. A function has a value y(x), and a
// slope dy/dx as a function of x and y.
#pragma once

#include <cmath>
#include <numbers>
#include <type_traits>

#include "lmx/kernels.h"
#include "lmx/math.h"
#include "lmx/operand.h"

namespace lmx::ops {

// Phi(x) = erfc(-x / sqrt(2)) / 2. float: erfc(z) = t exp(P(t) - z^2) for z >= 0, t = 1 / (1 + z / 2), where P is a
// Chebyshev fit of log(erfc(z) / t) + z^2 over t in [0.08, 1] with errors below 1.1e-7; for z < 0 it is 2 - erfc(-z).
LMX_HD inline float normal_distribution(float x) {
  constexpr float kPolynomial[] = {0.1853902245f,  -0.8925305321f, 1.6329124550f, -1.2984116460f, 0.3896914002f,
                                   -0.2325467992f, 0.1084501698f,  0.3724153283f, 1.0001450120f,  -1.2655155081f};
  const float z = std::abs(x) * 0.70710678118f;
  const float t = 1.0f / (1.0f + 0.5f * z);
  float p = kPolynomial[0];
  for (int i = 1; i < 10; ++i) p = p * t + kPolynomial[i];
  const float tail = 0.5f * t * fast_exp(p - z * z);
  return x < 0.0f ? tail : 1.0f - tail;
}
LMX_HD inline double normal_distribution(double x) {
  return 0.5 * std::erfc(-x / std::numbers::sqrt2);
}
template <class T>
LMX_HD T normal_density(T x) {
  return T(0.39894228040143267794) * fast_exp(T(-0.5) * x * x);
}

struct Tanh {
  static constexpr const char* kName = "tanh";
  template <class T>
  LMX_HD T value(T x) const {
    return fast_tanh(x);
  }
  template <class T>
  LMX_HD T slope(T, T y) const {
    return T(1) - y * y;
  }
};
struct Sigmoid {
  static constexpr const char* kName = "sigmoid";
  template <class T>
  LMX_HD T value(T x) const {
    return fast_sigmoid(x);
  }
  template <class T>
  LMX_HD T slope(T, T y) const {
    return y * (T(1) - y);
  }
};
struct Relu {
  static constexpr const char* kName = "relu";
  template <class T>
  LMX_HD T value(T x) const {
    return x < T(0) ? T(0) : x;
  }  // NaN stays NaN
  template <class T>
  LMX_HD T slope(T, T y) const {
    return y > T(0) ? T(1) : T(0);
  }
};
struct Exp {
  static constexpr const char* kName = "exp";
  template <class T>
  LMX_HD T value(T x) const {
    return fast_exp(x);
  }
  template <class T>
  LMX_HD T slope(T, T y) const {
    return y;
  }
};
struct Log {
  static constexpr const char* kName = "log";
  template <class T>
  LMX_HD T value(T x) const {
    return fast_log(x);
  }
  template <class T>
  LMX_HD T slope(T x, T) const {
    return T(1) / x;
  }
};
struct Sqrt {
  static constexpr const char* kName = "sqrt";
  template <class T>
  LMX_HD T value(T x) const {
    return std::sqrt(x);
  }
  template <class T>
  LMX_HD T slope(T, T y) const {
    return T(0.5) / y;
  }
};
struct Pow {
  static constexpr const char* kName = "pow";
  double exponent;
  template <class T>
  LMX_HD T value(T x) const {
    return static_cast<T>(std::pow(x, static_cast<T>(exponent)));
  }
  template <class T>
  LMX_HD T slope(T x, T) const {  // the slope of x^0 is 0, also at x = 0
    return exponent == 0 ? T(0) : static_cast<T>(exponent) * static_cast<T>(std::pow(x, static_cast<T>(exponent - 1)));
  }
};
struct Square {  // pow(x, 2)
  static constexpr const char* kName = "pow";
  template <class T>
  LMX_HD T value(T x) const {
    return x * x;
  }
  template <class T>
  LMX_HD T slope(T x, T) const {
    return T(2) * x;
  }
};
struct Silu {
  static constexpr const char* kName = "silu";
  template <class T>
  LMX_HD T value(T x) const {
    return x * fast_sigmoid(x);
  }
  template <class T>
  LMX_HD T slope(T x, T) const {
    const T s = fast_sigmoid(x);
    return s * (T(1) + x * (T(1) - s));
  }
};
struct Gelu {
  static constexpr const char* kName = "gelu";
  template <class T>
  LMX_HD T value(T x) const {
    return x * normal_distribution(x);
  }
  template <class T>
  LMX_HD T slope(T x, T) const {
    return normal_distribution(x) + x * normal_density(x);
  }
};
struct GeluTanh {
  static constexpr const char* kName = "gelu_tanh";
  static constexpr double kRoot = 0.79788456080286535588, kCubic = 0.044715;  // sqrt(2 / pi)
  template <class T>
  LMX_HD T value(T x) const {
    return T(0.5) * x * (T(1) + fast_tanh(T(kRoot) * (x + T(kCubic) * x * x * x)));
  }
  template <class T>
  LMX_HD T slope(T x, T) const {
    const T t = fast_tanh(T(kRoot) * (x + T(kCubic) * x * x * x));
    const T du = T(kRoot) * (T(1) + T(3 * kCubic) * x * x);
    return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * du;
  }
};

// Whether y is usually an input of a matrix product, as that of a feed-forward layer's activation.
template <class F>
inline constexpr bool kFeedsProducts =
    std::is_same_v<F, Relu> || std::is_same_v<F, Silu> || std::is_same_v<F, Gelu> || std::is_same_v<F, GeluTanh>;

// y = f(x). The arguments derive from f, so that they have the same layout in device code (comm/codec/codecs.h).
template <class F, class T>
struct Elementwise : F {
  const T* x;
  T* y;
  int64_t n;
  OperandTarget operand = {};  // of y
};

// dx = f'(x) dy
template <class F, class T>
struct ElementwiseBackward : F {
  const T *x, *y, *dy;
  T* dx;
  int64_t n;
  OperandTarget operand = {};  // of dx
};

}  // namespace lmx::ops
