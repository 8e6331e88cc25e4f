#include "ops/array/broadcast.h"

namespace lmx::ops {

int dimension(const char* op, int dim, const Shape& shape) {
  const int d = dim < 0 ? dim + shape.rank() : dim;
  if (d >= 0 && d < shape.rank()) return d;
  throw UserError(
      str("[", op, "] dimension ", dim, " of x ", shape, ": must be in [", -shape.rank(), ", ", shape.rank(), ")"));
}

Around around(const Shape& shape, int dim) {
  Around a;
  for (int d = 0; d < shape.rank(); ++d) (d < dim ? a.outer : d == dim ? a.size : a.inner) *= shape[d];
  return a;
}

Shape broadcast_shape(const char* op, const char* name_a, const Shape& a, const char* name_b, const Shape& b) {
  Shape result = a.rank() >= b.rank() ? a : b;
  for (int i = 1; i <= std::min(a.rank(), b.rank()); ++i) {
    const int64_t x = a[a.rank() - i], y = b[b.rank() - i];
    if (x != y && x != 1 && y != 1) {
      throw UserError(str("[", op, "] ", name_a, ' ', a, " and ", name_b, ' ', b, ": sizes ", x, " and ", y,
                          " do not broadcast; from the last dimension on they must be equal or 1"));
    }
    result[result.rank() - i] = x == 1 ? y : x;
  }
  return result;
}

std::array<int64_t, Shape::kMaxRank> broadcast_strides(const Shape& own, const Shape& result) {
  std::array<int64_t, Shape::kMaxRank> strides{};
  int64_t stride = 1;
  for (int i = 1; i <= own.rank(); ++i) {
    const int64_t n = own[own.rank() - i];
    strides[static_cast<size_t>(result.rank() - i)] = n == 1 ? 0 : stride;
    stride *= n;
  }
  return strides;
}

Tensor copied(Context& ctx, const char* op, const Tensor& x, const Walk<1>& walk, const Shape& shape) {
  Tensor y = ctx.empty(shape, x.dtype());
  with_values(op, x, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, CopyWalk<T>{x.data<T>(), y.data<T>(), walk, y.numel()});
  });
  return y;
}

Tensor repeated(Context& ctx, const Tensor& x, const Shape& shape) {
  return copied(ctx, "broadcast_to", x, walk_of<1>(shape, {&x.shape()}), shape);
}

Tensor sum_middle(Context& ctx, const Tensor& x, const Around& a, const Shape& shape, double factor) {
  Tensor y = ctx.empty(shape, x.dtype());
  with_values("sum", x, [&](auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>();
    if (a.inner == 1) return run_kernel(ctx, SumRows<T>{from, y.data<T>(), a.outer, a.size, factor});
    run_kernel(ctx, SumColumns<T>{from, y.data<T>(), a.outer, a.size, a.inner, factor});
  });
  return y;
}

Tensor reduce_to(Context& ctx, const Tensor& t, const Shape& shape) {
  if (t.shape() == shape) return t;
  Tensor sums = t;
  const int extra = t.rank() - shape.rank();
  Shape left = t.shape();
  // Neighbouring dimensions that repeat are summed together, starting with the last ones.
  for (int d = t.rank() - 1; d >= 0; --d) {
    const auto repeats = [&](int i) { return i < extra || (shape[i - extra] == 1 && t.dim(i) != 1); };
    if (!repeats(d)) continue;
    int first = d;
    while (first > 0 && repeats(first - 1)) --first;
    Around a;
    for (int i = 0; i < t.rank(); ++i) (i < first ? a.outer : i <= d ? a.size : a.inner) *= left[i];
    for (int i = first; i <= d; ++i) left[i] = 1;
    sums = sum_middle(ctx, sums, a, left);
    d = first;
  }
  return sums.reshape(shape);
}

}  // namespace lmx::ops
