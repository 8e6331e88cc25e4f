// Sums, products and other views of whole tensors.
//
//   add       y = a + b          da = dy        db = dy
//   multiply  y = a b            da = b dy      db = a dy
//   scale     y = s x            dx = s dy
//   sum       y = sum_i x_i      dx_i = dy
//   reshape   y = x              dx = dy
#include "ops/common.h"

namespace lmx {
namespace {

using namespace ops;

void check_same(const char* op, const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) {
    throw UserError(str("[", op, "] a ", a.shape(), " and b ", b.shape(), ": shapes must be equal"));
  }
  check_same_type(op, "a", a, "b", b);
}

template <class T>
LMX_SIMD void add_kernel(const T* a, const T* b, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

template <class T>
LMX_SIMD void multiply_kernel(const T* a, const T* b, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] * b[i];
}

Tensor product(const char* op, const Tensor& a, const Tensor& b) {
  Tensor y = a.like(MemClass::activations);
  with_values(op, a, [&](auto zero) {
    using T = decltype(zero);
    const T *pa = a.data<T>(), *pb = b.data<T>();
    T* py = y.data<T>();
    parallel_for(y.numel(), kGrain, [&](int64_t begin, int64_t end) {
      multiply_kernel<T>(pa + begin, pb + begin, py + begin, end - begin);
    });
  });
  return y;
}

// Fixed blocks, so that the sum does not depend on the threads.
template <class T>
LMX_SIMD double block_sum(const T* x, int64_t n) {
  double s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; ++i) s += static_cast<double>(x[i]);
  return s;
}

}  // namespace

Var add(Context& ctx, const Var& a, const Var& b) {
  check_same("add", a.value(), b.value());
  Tensor y = a.value().like(MemClass::activations);
  with_values("add", y, [&](auto zero) {
    using T = decltype(zero);
    const T *pa = a.value().data<T>(), *pb = b.value().data<T>();
    T* py = y.data<T>();
    parallel_for(y.numel(), kGrain,
                 [&](int64_t begin, int64_t end) { add_kernel<T>(pa + begin, pb + begin, py + begin, end - begin); });
  });
  Var out(y);
  if (recording(ctx, {&a, &b})) {
    ctx.tape->record("add", {a, b}, {out}, [&ctx, a, b, out](Tape&) {
      const Tensor dy = Tape::grad_of(out);
      // Gradients are added to in place, so the two inputs must not share one.
      if (a.requires_grad() && b.requires_grad()) {
        const Tensor copy = dy.clone();
        Tape::accumulate(ctx, a, dy);
        Tape::accumulate(ctx, b, copy);
      } else {
        Tape::accumulate(ctx, a, dy);
        Tape::accumulate(ctx, b, dy);
      }
    });
  }
  return out;
}

Var multiply(Context& ctx, const Var& a, const Var& b) {
  check_same("multiply", a.value(), b.value());
  Var out(product("multiply", a.value(), b.value()));
  if (recording(ctx, {&a, &b})) {
    ctx.tape->record("multiply", {a, b}, {out}, [&ctx, a, b, out](Tape&) {
      const Tensor dy = Tape::grad_of(out);
      if (a.requires_grad()) Tape::accumulate(ctx, a, product("multiply", dy, b.value()));
      if (b.requires_grad()) Tape::accumulate(ctx, b, product("multiply", dy, a.value()));
    });
  }
  return out;
}

Var scale(Context& ctx, const Var& x, double factor) {
  Tensor y = x.value().clone(MemClass::activations);
  scale_in_place(y, factor);
  Var out(y);
  if (recording(ctx, {&x})) {
    ctx.tape->record("scale", {x}, {out}, [&ctx, x, out, factor](Tape&) {
      Tensor dx = Tape::grad_of(out).clone();
      scale_in_place(dx, factor);
      Tape::accumulate(ctx, x, dx);
    });
  }
  return out;
}

Var sum(Context& ctx, const Var& x) {
  const Tensor& value = x.value();
  const double total = with_values("sum", value, [&](auto zero) {
    using T = decltype(zero);
    constexpr int64_t kBlock = 1 << 14;
    const T* px = value.data<T>();
    std::vector<double> sums(static_cast<size_t>((value.numel() + kBlock - 1) / kBlock));
    parallel_for(static_cast<int64_t>(sums.size()), 4, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        sums[static_cast<size_t>(b)] = block_sum<T>(px + b * kBlock, std::min(kBlock, value.numel() - b * kBlock));
      }
    });
    double s = 0;
    for (const double part : sums) s += part;
    return s;
  });
  Var out(scalar(ctx, total, value.dtype()));
  if (recording(ctx, {&x})) {
    ctx.tape->record("sum", {x}, {out}, [&ctx, x, out](Tape&) {
      Tensor dx = x.value().like(MemClass::activations);
      with_values("sum", dx, [&](auto zero) {
        using T = decltype(zero);
        std::fill_n(dx.data<T>(), dx.numel(), *Tape::grad_of(out).data<T>());
      });
      Tape::accumulate(ctx, x, dx);
    });
  }
  return out;
}

Var reshape(Context& ctx, const Var& x, Shape shape) {
  int64_t known = 1;
  int unknown = 0;
  for (const int64_t d : shape.dims()) {
    if (d == -1) {
      ++unknown;
    } else {
      known *= d;
    }
  }
  const int64_t n = x.value().numel();
  if (unknown > 1 || known < 0 || (unknown == 1 ? known == 0 || n % known != 0 : known != n)) {
    throw UserError(str("[reshape] x ", x.shape(), " to ", shape, ": ", n, " elements do not fit"));
  }
  Var out(x.value().reshape(shape));
  if (recording(ctx, {&x})) {
    ctx.tape->record("reshape", {x}, {out},
                     [&ctx, x, out](Tape&) { Tape::accumulate(ctx, x, Tape::grad_of(out).reshape(x.shape())); });
  }
  return out;
}

}  // namespace lmx
