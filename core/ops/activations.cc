// Pointwise functions whose derivative is a function of the value y.
//
//   tanh     dx = (1 - y^2) dy
//   sigmoid  dx = y (1 - y) dy
//   relu     dx = dy where y > 0
#include "lmx/math.h"
#include "ops/common.h"

namespace lmx {
namespace {

using namespace ops;

struct Tanh {
  static constexpr const char* kName = "tanh";
  template <class T>
  static T value(T x) {
    return fast_tanh(x);
  }
  template <class T>
  static T slope(T y) {
    return T(1) - y * y;
  }
};
struct Sigmoid {
  static constexpr const char* kName = "sigmoid";
  template <class T>
  static T value(T x) {
    return fast_sigmoid(x);
  }
  template <class T>
  static T slope(T y) {
    return y * (T(1) - y);
  }
};
struct Relu {
  static constexpr const char* kName = "relu";
  template <class T>
  static T value(T x) {
    return x < T(0) ? T(0) : x;
  }  // NaN passes
  template <class T>
  static T slope(T y) {
    return y > T(0) ? T(1) : T(0);
  }
};

template <class F, class T>
LMX_SIMD void forward(const T* x, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = F::template value<T>(x[i]);
}

template <class F, class T>
LMX_SIMD void backward(const T* y, const T* dy, T* dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dx[i] = F::template slope<T>(y[i]) * dy[i];
}

template <class F>
Var pointwise(Context& ctx, const Var& x) {
  Tensor y = x.value().like(MemClass::activations);
  with_values(F::kName, y, [&](auto zero) {
    using T = decltype(zero);
    const T* px = x.value().data<T>();
    T* py = y.data<T>();
    parallel_for(y.numel(), kGrain / 4,
                 [&](int64_t begin, int64_t end) { forward<F, T>(px + begin, py + begin, end - begin); });
  });
  Var out(y);
  if (recording(ctx, {&x})) {
    ctx.tape->record(F::kName, {x}, {out}, [&ctx, x, out](Tape&) {
      const Tensor& value = out.value();
      const Tensor dy = Tape::grad_of(out);
      Tensor dx = dy.like(MemClass::activations);
      with_values(F::kName, dx, [&](auto zero) {
        using T = decltype(zero);
        const T *py = value.data<T>(), *pdy = dy.data<T>();
        T* pdx = dx.data<T>();
        parallel_for(dx.numel(), kGrain, [&](int64_t begin, int64_t end) {
          backward<F, T>(py + begin, pdy + begin, pdx + begin, end - begin);
        });
      });
      Tape::accumulate(ctx, x, dx);
    });
  }
  return out;
}

}  // namespace

Var tanh(Context& ctx, const Var& x) {
  return pointwise<Tanh>(ctx, x);
}
Var sigmoid(Context& ctx, const Var& x) {
  return pointwise<Sigmoid>(ctx, x);
}
Var relu(Context& ctx, const Var& x) {
  return pointwise<Relu>(ctx, x);
}

}  // namespace lmx
