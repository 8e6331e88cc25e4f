// Arithmetic of two operands that broadcast. The gradient of an operand is summed where the operand repeats.
//
//   add       y = a + b     da = dy         db = dy
//   subtract  y = a - b     da = dy         db = -dy
//   multiply  y = a b       da = b dy       db = a dy
//   divide    y = a / b     da = dy / b     db = -a dy / b^2
#include "lmx/array_ops.h"
#include "ops/broadcast.h"

namespace lmx {
namespace {

using namespace ops;

// value: result of the op; da, db: contribution of g = dy to the gradients of a and b.
struct Add {
  static constexpr const char* kName = "add";
  static constexpr bool kKeepsSlope = true;  // da is dy itself
  template <class T>
  static T value(T a, T b) {
    return a + b;
  }
  template <class T>
  static T da(T, T, T g) {
    return g;
  }
  template <class T>
  static T db(T, T, T g) {
    return g;
  }
};
struct Subtract {
  static constexpr const char* kName = "subtract";
  static constexpr bool kKeepsSlope = true;
  template <class T>
  static T value(T a, T b) {
    return a - b;
  }
  template <class T>
  static T da(T, T, T g) {
    return g;
  }
  template <class T>
  static T db(T, T, T g) {
    return -g;
  }
};
struct Multiply {
  static constexpr const char* kName = "multiply";
  static constexpr bool kKeepsSlope = false;
  template <class T>
  static T value(T a, T b) {
    return a * b;
  }
  template <class T>
  static T da(T, T b, T g) {
    return g * b;
  }
  template <class T>
  static T db(T a, T, T g) {
    return g * a;
  }
};
struct Divide {
  static constexpr const char* kName = "divide";
  static constexpr bool kKeepsSlope = false;
  template <class T>
  static T value(T a, T b) {
    return a / b;
  }
  template <class T>
  static T da(T, T b, T g) {
    return g / b;
  }
  template <class T>
  static T db(T a, T b, T g) {
    return -g * (a / b) / b;
  }
};

// `A`, `B`: whether the operand advances with each element, or repeats.
template <class F, class T, bool A, bool B>
LMX_SIMD void value_run(const T* a, const T* b, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = F::value(a[A ? i : 0], b[B ? i : 0]);
}
template <class F, class T, bool A, bool B, bool First>
LMX_SIMD void slope_run(const T* a, const T* b, const T* dy, T* dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T x = a[A ? i : 0], y = b[B ? i : 0];
    dx[i] = First ? F::da(x, y, dy[i]) : F::db(x, y, dy[i]);
  }
}

// Calls run(at, a, b, n) for runs of elements, with their positions in the result and in both operands. `run` is a
// template on whether each operand advances.
template <class T, class Run>
void each_run(const Tensor& a, const Tensor& b, const Shape& shape, Run&& run) {
  const Walk<2> walk = walk_of<2>(shape, {&a.shape(), &b.shape()});
  const auto inner = static_cast<size_t>(walk.rank - 1);
  const bool a_moves = walk.stride[0][inner] != 0, b_moves = walk.stride[1][inner] != 0;
  const T *pa = a.data<T>(), *pb = b.data<T>();
  parallel_for(shape.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for_runs(walk, begin, end, [&](int64_t at, const std::array<int64_t, 2>& o, int64_t n) {
      const T *x = pa + o[0], *y = pb + o[1];
      if (a_moves && b_moves) {
        run.template operator()<true, true>(at, x, y, n);
      } else if (a_moves) {
        run.template operator()<true, false>(at, x, y, n);
      } else if (b_moves) {
        run.template operator()<false, true>(at, x, y, n);
      } else {
        run.template operator()<false, false>(at, x, y, n);
      }
    });
  });
}

template <class F, bool First>
void backward(Context& ctx, const Var& a, const Var& b, const Tensor& dy) {
  const Var& input = First ? a : b;
  Tensor dx = dy.like(MemClass::activations);
  with_values(F::kName, dy, [&](auto zero) {
    using T = decltype(zero);
    const T* pdy = dy.data<T>();
    T* pdx = dx.data<T>();
    each_run<T>(a.value(), b.value(), dy.shape(), [&]<bool A, bool B>(int64_t at, const T* x, const T* y, int64_t n) {
      slope_run<F, T, A, B, First>(x, y, pdy + at, pdx + at, n);
    });
  });
  Tape::accumulate(ctx, input, reduce_to(ctx, dx, input.shape()));
}

template <class F>
Var binary(Context& ctx, const Var& a, const Var& b) {
  check_same_type(F::kName, "a", a.value(), "b", b.value());
  const Shape shape = broadcast_shape(F::kName, "a", a.shape(), "b", b.shape());
  Tensor y = ctx.empty(shape, a.value().dtype());
  with_values(F::kName, y, [&](auto zero) {
    using T = decltype(zero);
    T* py = y.data<T>();
    each_run<T>(a.value(), b.value(), shape, [&]<bool A, bool B>(int64_t at, const T* pa, const T* pb, int64_t n) {
      value_run<F, T, A, B>(pa, pb, py + at, n);
    });
  });
  Var out(y);
  if (recording(ctx, {&a, &b})) {
    ctx.tape->record(F::kName, {a, b}, {out}, [&ctx, a, b, out](Tape&) {
      const Tensor dy = Tape::grad_of(out);
      // An input takes ownership of the gradient that it is given, so only one of the inputs may take dy itself.
      if (b.requires_grad()) backward<F, false>(ctx, a, b, dy);
      if (!a.requires_grad()) return;
      if (F::kKeepsSlope) {
        Tape::accumulate(ctx, a, reduce_to(ctx, dy, a.shape()));
      } else {
        backward<F, true>(ctx, a, b, dy);
      }
    });
  }
  return out;
}

}  // namespace

Var add(Context& ctx, const Var& a, const Var& b) {
  return binary<Add>(ctx, a, b);
}
Var subtract(Context& ctx, const Var& a, const Var& b) {
  return binary<Subtract>(ctx, a, b);
}
Var multiply(Context& ctx, const Var& a, const Var& b) {
  return binary<Multiply>(ctx, a, b);
}
Var divide(Context& ctx, const Var& a, const Var& b) {
  return binary<Divide>(ctx, a, b);
}

}  // namespace lmx
