// Elementwise functions; their derivative is a function of the input x and the value y.
//
//   tanh       dx = (1 - y^2) dy                      sigmoid  dx = y (1 - y) dy
//   relu       dx = dy where y > 0
//   exp        dx = y dy                              log   dx = dy / x
//   sqrt       dx = dy / (2 y)                        pow   dx = p x^(p - 1) dy
//   silu       y = x s(x), s the sigmoid              dx = s (1 + x (1 - s)) dy
//   gelu       y = x Phi(x)                           dx = (Phi(x) + x phi(x)) dy
//   gelu_tanh  y = x (1 + tanh u) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3)
//              dx = ((1 + tanh u) / 2 + x (1 - tanh^2 u) u' / 2) dy,  u' = sqrt(2 / pi) (1 + 3 0.044715 x^2)
//
// phi and Phi: density and distribution of the standard normal.
#include <cmath>
#include <numbers>

#include "lmx/array_ops.h"
#include "lmx/math.h"
#include "lmx/ops.h"
#include "ops/common.h"

namespace lmx {
namespace {

using namespace ops;

// Phi(x) = erfc(-x / sqrt(2)) / 2. float: erfc(z) = t exp(P(t) - z^2) for z >= 0, t = 1 / (1 + z / 2), where P is a
// Chebyshev fit of log(erfc(z) / t) + z^2 over t in [0.08, 1] with errors below 1.1e-7; for z < 0 it is 2 - erfc(-z).
inline float normal_distribution(float x) {
  constexpr float kPolynomial[] = {0.1853902245f,  -0.8925305321f, 1.6329124550f, -1.2984116460f, 0.3896914002f,
                                   -0.2325467992f, 0.1084501698f,  0.3724153283f, 1.0001450120f,  -1.2655155081f};
  const float z = std::abs(x) * 0.70710678118f;
  const float t = 1.0f / (1.0f + 0.5f * z);
  float p = kPolynomial[0];
  for (int i = 1; i < 10; ++i) p = p * t + kPolynomial[i];
  const float tail = 0.5f * t * fast_exp(p - z * z);
  return x < 0.0f ? tail : 1.0f - tail;
}
inline double normal_distribution(double x) {
  return 0.5 * std::erfc(-x / std::numbers::sqrt2);
}
template <class T>
T normal_density(T x) {
  return T(0.39894228040143267794) * fast_exp(T(-0.5) * x * x);
}

struct Tanh {
  static constexpr const char* kName = "tanh";
  template <class T>
  T value(T x) const {
    return fast_tanh(x);
  }
  template <class T>
  T slope(T, T y) const {
    return T(1) - y * y;
  }
};
struct Sigmoid {
  static constexpr const char* kName = "sigmoid";
  template <class T>
  T value(T x) const {
    return fast_sigmoid(x);
  }
  template <class T>
  T slope(T, T y) const {
    return y * (T(1) - y);
  }
};
struct Relu {
  static constexpr const char* kName = "relu";
  template <class T>
  T value(T x) const {
    return x < T(0) ? T(0) : x;
  }  // NaN stays NaN
  template <class T>
  T slope(T, T y) const {
    return y > T(0) ? T(1) : T(0);
  }
};
struct Exp {
  static constexpr const char* kName = "exp";
  template <class T>
  T value(T x) const {
    return fast_exp(x);
  }
  template <class T>
  T slope(T, T y) const {
    return y;
  }
};
struct Log {
  static constexpr const char* kName = "log";
  template <class T>
  T value(T x) const {
    return fast_log(x);
  }
  template <class T>
  T slope(T x, T) const {
    return T(1) / x;
  }
};
struct Sqrt {
  static constexpr const char* kName = "sqrt";
  template <class T>
  T value(T x) const {
    return std::sqrt(x);
  }
  template <class T>
  T slope(T, T y) const {
    return T(0.5) / y;
  }
};
struct Pow {
  static constexpr const char* kName = "pow";
  double exponent;
  template <class T>
  T value(T x) const {
    return static_cast<T>(std::pow(x, static_cast<T>(exponent)));
  }
  template <class T>
  T slope(T x, T) const {  // the slope of x^0 is 0, also at x = 0
    return exponent == 0 ? T(0) : static_cast<T>(exponent) * static_cast<T>(std::pow(x, static_cast<T>(exponent - 1)));
  }
};
struct Square {
  static constexpr const char* kName = "pow";
  template <class T>
  T value(T x) const {
    return x * x;
  }
  template <class T>
  T slope(T x, T) const {
    return T(2) * x;
  }
};
struct Silu {
  static constexpr const char* kName = "silu";
  template <class T>
  T value(T x) const {
    return x * fast_sigmoid(x);
  }
  template <class T>
  T slope(T x, T) const {
    const T s = fast_sigmoid(x);
    return s * (T(1) + x * (T(1) - s));
  }
};
struct Gelu {
  static constexpr const char* kName = "gelu";
  template <class T>
  T value(T x) const {
    return x * normal_distribution(x);
  }
  template <class T>
  T slope(T x, T) const {
    return normal_distribution(x) + x * normal_density(x);
  }
};
struct GeluTanh {
  static constexpr const char* kName = "gelu_tanh";
  static constexpr double kRoot = 0.79788456080286535588, kCubic = 0.044715;  // sqrt(2 / pi)
  template <class T>
  T value(T x) const {
    return T(0.5) * x * (T(1) + fast_tanh(T(kRoot) * (x + T(kCubic) * x * x * x)));
  }
  template <class T>
  T slope(T x, T) const {
    const T t = fast_tanh(T(kRoot) * (x + T(kCubic) * x * x * x));
    const T du = T(kRoot) * (T(1) + T(3 * kCubic) * x * x);
    return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * du;
  }
};

template <class F, class T>
LMX_SIMD void forward(const F& f, const T* x, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = f.value(x[i]);
}

template <class F, class T>
LMX_SIMD void backward(const F& f, const T* x, const T* y, const T* dy, T* dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dx[i] = f.slope(x[i], y[i]) * dy[i];
}

// `kBackwardGrain`: minimum number of elements per thread in backward.
template <class F, int64_t kBackwardGrain = kGrain / 4>
Var elementwise(Context& ctx, const Var& x, F f = {}) {
  Tensor y = x.value().like(MemClass::activations);
  with_values(F::kName, y, [&](auto zero) {
    using T = decltype(zero);
    const T* px = x.value().data<T>();
    T* py = y.data<T>();
    parallel_for(y.numel(), kGrain / 4,
                 [&](int64_t begin, int64_t end) { forward<F, T>(f, px + begin, py + begin, end - begin); });
  });
  Var out(y);
  if (recording(ctx, {&x})) {
    ctx.tape->record(F::kName, {x}, {out}, [&ctx, f, x, out](Tape&) {
      const Tensor dy = Tape::grad_of(out);
      Tensor dx = dy.like(MemClass::activations);
      with_values(F::kName, dx, [&](auto zero) {
        using T = decltype(zero);
        const T *px = x.value().data<T>(), *py = out.value().data<T>(), *pdy = dy.data<T>();
        T* pdx = dx.data<T>();
        parallel_for(dx.numel(), kBackwardGrain, [&](int64_t begin, int64_t end) {
          backward<F, T>(f, px + begin, py + begin, pdy + begin, pdx + begin, end - begin);
        });
      });
      Tape::accumulate(ctx, x, dx);
    });
  }
  return out;
}

}  // namespace

Var tanh(Context& ctx, const Var& x) {
  return elementwise<Tanh, kGrain>(ctx, x);
}
Var sigmoid(Context& ctx, const Var& x) {
  return elementwise<Sigmoid, kGrain>(ctx, x);
}
Var relu(Context& ctx, const Var& x) {
  return elementwise<Relu, kGrain>(ctx, x);
}
Var exp(Context& ctx, const Var& x) {
  return elementwise<Exp>(ctx, x);
}
Var log(Context& ctx, const Var& x) {
  return elementwise<Log>(ctx, x);
}
Var sqrt(Context& ctx, const Var& x) {
  return elementwise<Sqrt>(ctx, x);
}
Var pow(Context& ctx, const Var& x, double exponent) {
  return exponent == 2 ? elementwise<Square>(ctx, x) : elementwise<Pow>(ctx, x, {exponent});
}
Var silu(Context& ctx, const Var& x) {
  return elementwise<Silu>(ctx, x);
}
Var gelu(Context& ctx, const Var& x) {
  return elementwise<Gelu>(ctx, x);
}
Var gelu_tanh(Context& ctx, const Var& x) {
  return elementwise<GeluTanh>(ctx, x);
}

}  // namespace lmx
