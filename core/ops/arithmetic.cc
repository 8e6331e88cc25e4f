// Scaled, shifted and summed tensors, and tensors with another shape.
//
//   scale       y = s x            dx = s dy
//   add_scalar  y = x + c          dx = dy
//   sum         y = sum_i x_i      dx_i = dy
//   reshape     y = x              dx = dy
#include "lmx/array_ops.h"
#include "ops/common.h"

namespace lmx {
namespace {

using namespace ops;

template <class T>
LMX_SIMD void shift_kernel(const T* x, T* y, T constant, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] + constant;
}

// Sums in fixed blocks, so that the result does not depend on the number of threads.
template <class T>
LMX_SIMD double block_sum(const T* x, int64_t n) {
  double s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; ++i) s += static_cast<double>(x[i]);
  return s;
}

}  // namespace

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

Var add_scalar(Context& ctx, const Var& x, double constant) {
  Tensor y = x.value().like(MemClass::activations);
  with_values("add_scalar", y, [&](auto zero) {
    using T = decltype(zero);
    const T* px = x.value().data<T>();
    T* py = y.data<T>();
    parallel_for(y.numel(), kGrain, [&](int64_t begin, int64_t end) {
      shift_kernel<T>(px + begin, py + begin, static_cast<T>(constant), end - begin);
    });
  });
  Var out(y);
  if (recording(ctx, {&x})) {
    ctx.tape->record("add_scalar", {x}, {out}, [&ctx, x, out](Tape&) { Tape::accumulate(ctx, x, Tape::grad_of(out)); });
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
