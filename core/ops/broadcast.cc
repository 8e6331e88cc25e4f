#include "ops/broadcast.h"

#include <vector>

namespace lmx::ops {
namespace {

template <class T>
LMX_SIMD double sum_row(const T* x, int64_t n) {
  double s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; ++i) s += static_cast<double>(x[i]);
  return s;
}

template <class T>
LMX_SIMD void add_row(double* __restrict sums, const T* __restrict x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(x[i]);
}

template <class T>
void copy_run(T* to, const T* from, int64_t stride, int64_t n) {
  if (stride == 1) {
    std::copy_n(from, n, to);
  } else if (stride == 0) {
    std::fill_n(to, n, *from);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
  }
}

// Sums of rows of n elements. A long row is summed in fixed blocks, which are divided among the threads.
template <class T>
void sum_rows(const T* x, int64_t rows, int64_t n, T* y, double factor) {
  constexpr int64_t kBlock = 1 << 14;
  const int64_t blocks = std::max<int64_t>(1, (n + kBlock - 1) / kBlock);
  std::vector<double> parts(static_cast<size_t>(rows * blocks));
  parallel_for(rows * blocks, std::max<int64_t>(1, kGrain / std::min(std::max<int64_t>(n, 1), kBlock)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t r = i / blocks, first = i % blocks * kBlock;
                   parts[static_cast<size_t>(i)] = sum_row<T>(x + r * n + first, std::min(kBlock, n - first));
                 }
               });
  for (int64_t r = 0; r < rows; ++r) {
    double s = 0;
    for (int64_t b = 0; b < blocks; ++b) s += parts[static_cast<size_t>(r * blocks + b)];
    y[r] = static_cast<T>(s * factor);
  }
}

// Sums of columns. One thread sums each column, with the rows in ascending order.
template <class T>
void sum_columns(const T* x, const Around& a, T* y, double factor) {
  const int64_t grain = std::max<int64_t>(64, kGrain / std::max<int64_t>(a.size, 1));
  parallel_for(a.outer * a.inner, grain, [&](int64_t begin, int64_t end) {
    std::vector<double> sums;
    for (int64_t at = begin; at < end;) {
      const int64_t o = at / a.inner, column = at % a.inner, n = std::min(a.inner - column, end - at);
      sums.assign(static_cast<size_t>(n), 0);
      for (int64_t r = 0; r < a.size; ++r) add_row<T>(sums.data(), x + (o * a.size + r) * a.inner + column, n);
      for (int64_t i = 0; i < n; ++i) y[at + i] = static_cast<T>(sums[static_cast<size_t>(i)] * factor);
      at += n;
    }
  });
}

}  // namespace

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

Tensor repeated(Context& ctx, const Tensor& x, const Shape& shape) {
  Tensor y = ctx.empty(shape, x.dtype());
  const Walk<1> walk = walk_of<1>(shape, {&x.shape()});
  const int64_t stride = walk.stride[0][static_cast<size_t>(walk.rank - 1)];
  with_values("broadcast_to", x, [&](auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>();
    T* to = y.data<T>();
    parallel_for(y.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for_runs(walk, begin, end, [&](int64_t at, const std::array<int64_t, 1>& offsets, int64_t n) {
        copy_run(to + at, from + offsets[0], stride, n);
      });
    });
  });
  return y;
}

Tensor sum_middle(Context& ctx, const Tensor& x, const Around& a, const Shape& shape, double factor) {
  Tensor y = ctx.empty(shape, x.dtype());
  with_values("sum", x, [&](auto zero) {
    using T = decltype(zero);
    if (a.inner == 1) {
      sum_rows<T>(x.data<T>(), a.outer, a.size, y.data<T>(), factor);
    } else {
      sum_columns<T>(x.data<T>(), a, y.data<T>(), factor);
    }
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
