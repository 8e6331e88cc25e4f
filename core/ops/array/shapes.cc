// Ops that move elements. The gradient moves them back, and is 0 for elements that were left out.
//
//   slice, split    part of a dimension          dx = dy in the part, 0 elsewhere
//   concat, stack   parts one after the other    dx_i = the part of dy
//   transpose, permute                           dx = dy with the inverse order
//   broadcast_to    repeated elements            dx = the sum over the repetitions
#include "ops/array/shapes.h"

#include <numeric>

#include "lmx/array_ops.h"
#include "ops/array/broadcast.h"

namespace lmx {
namespace {

using namespace ops;

Shape with_size(Shape shape, int dim, int64_t n) {
  shape[dim] = n;
  return shape;
}

// x[..., begin:begin+n, ...], without checks.
Tensor part_of(Context& ctx, const Tensor& x, int dim, int64_t begin, int64_t n) {
  Tensor part = ctx.empty(with_size(x.shape(), dim, n), x.dtype());
  const Around a = around(x.shape(), dim);
  const int64_t width = n * a.inner;
  with_values("slice", x, [&](auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>() + begin * a.inner;
    run_kernel(ctx, CopyRuns<T>{from, part.data<T>(), a.outer, width, a.size * a.inner, width});
  });
  return part;
}

// x[..., begin:begin+n, ...] = part, which has n elements in this dimension.
void put_part(Context& ctx, Tensor& x, const Tensor& part, int dim, int64_t begin) {
  const Around a = around(x.shape(), dim);
  const int64_t width = part.dim(dim) * a.inner;
  with_values("concat", x, [&](auto zero) {
    using T = decltype(zero);
    T* to = x.data<T>() + begin * a.inner;
    run_kernel(ctx, CopyRuns<T>{part.data<T>(), to, a.outer, width, width, a.size * a.inner});
  });
}

Var slice_checked(Context& ctx, const char* op, const Var& x, int dim, int64_t begin, int64_t n) {
  Var out(part_of(ctx, x.value(), dim, begin, n));
  if (recording(ctx, {&x})) {
    ctx.tape->record(op, {x}, {out}, [&ctx, x, out, dim, begin](Tape&) {
      Tensor dx = ctx.zeros(x.shape(), x.value().dtype());
      put_part(ctx, dx, Tape::grad_of(out), dim, begin);
      Tape::accumulate(ctx, x, dx);
    });
  }
  return out;
}

// x with its dimensions permuted to `order`.
Tensor permuted(Context& ctx, const Tensor& x, const std::vector<int>& order) {
  std::array<int64_t, Shape::kMaxRank> strides{};
  int64_t stride = 1;
  for (int d = x.rank() - 1; d >= 0; --d) {
    strides[static_cast<size_t>(d)] = stride;
    stride *= x.dim(d);
  }
  Shape shape = x.shape();
  Walk<1> walk;
  walk.add(1, {});
  for (size_t d = 0; d < order.size(); ++d) {
    shape[static_cast<int>(d)] = x.dim(order[d]);
    walk.add(x.dim(order[d]), {strides[static_cast<size_t>(order[d])]});
  }
  return copied(ctx, "permute", x, walk, shape);
}

Var permute_checked(Context& ctx, const char* op, const Var& x, const std::vector<int>& order) {
  Var out(permuted(ctx, x.value(), order));
  if (recording(ctx, {&x})) {
    std::vector<int> back(order.size());
    for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int>(i);
    ctx.tape->record(op, {x}, {out}, [&ctx, x, out, back](Tape&) {
      Tape::accumulate(ctx, x, permuted(ctx, Tape::grad_of(out), back));
    });
  }
  return out;
}

void check_parts(const char* op, const std::vector<Var>& parts, int dim) {
  if (parts.empty()) throw UserError(str("[", op, "] no parts: at least one expected"));
  for (size_t i = 1; i < parts.size(); ++i) {
    const Shape &first = parts[0].shape(), &other = parts[i].shape();
    check_same_type(op, "part 0", parts[0].value(), str("part ", i).c_str(), parts[i].value());
    const bool same =
        dim < 0 ? first == other : first.rank() == other.rank() && with_size(first, dim, 0) == with_size(other, dim, 0);
    if (same) continue;
    throw UserError(
        str("[", op, "] part 0 ", first, " and part ", i, ' ', other, ": ",
            dim < 0 ? str("shapes must be equal") : str("all sizes must be equal except that of dimension ", dim)));
  }
}

bool any_recording(const Context& ctx, const std::vector<Var>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const Var& v) { return recording(ctx, {&v}); });
}

}  // namespace

Var slice(Context& ctx, const Var& x, int dim, int64_t begin, int64_t end) {
  const int d = dimension("slice", dim, x.shape());
  const int64_t n = x.shape()[d], first = begin < 0 ? begin + n : begin, last = end < 0 ? end + n : end;
  if (first < 0 || last > n || first > last) {
    throw UserError(str("[slice] [", begin, ", ", end, ") of dimension ", dim, " of x ", x.shape(),
                        ": must lie in [0, ", n, "] and ascend"));
  }
  return slice_checked(ctx, "slice", x, d, first, last - first);
}

std::vector<Var> split(Context& ctx, const Var& x, const std::vector<int64_t>& sizes, int dim) {
  const int d = dimension("split", dim, x.shape());
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (total != x.shape()[d] || std::any_of(sizes.begin(), sizes.end(), [](int64_t n) { return n < 0; })) {
    throw UserError(str("[split] dimension ", dim, " of x ", x.shape(), " into sizes that add up to ", total, ": ",
                        x.shape()[d], " expected"));
  }
  std::vector<Var> parts;
  int64_t begin = 0;
  for (const int64_t n : sizes) {
    parts.push_back(slice_checked(ctx, "split", x, d, begin, n));
    begin += n;
  }
  return parts;
}

Var concat(Context& ctx, const std::vector<Var>& parts, int dim) {
  if (parts.empty()) check_parts("concat", parts, 0);
  const int d = dimension("concat", dim, parts[0].shape());
  check_parts("concat", parts, d);
  int64_t size = 0;
  for (const Var& part : parts) size += part.shape()[d];
  Tensor y = ctx.empty(with_size(parts[0].shape(), d, size), parts[0].value().dtype());
  int64_t begin = 0;
  for (const Var& part : parts) {
    put_part(ctx, y, part.value(), d, begin);
    begin += part.shape()[d];
  }
  Var out(y);
  if (any_recording(ctx, parts)) {
    ctx.tape->record("concat", parts, {out}, [&ctx, parts, out, d](Tape&) {
      const Tensor dy = Tape::grad_of(out);
      int64_t at = 0;
      for (const Var& part : parts) {
        if (part.requires_grad()) Tape::accumulate(ctx, part, part_of(ctx, dy, d, at, part.shape()[d]));
        at += part.shape()[d];
      }
    });
  }
  return out;
}

Var stack(Context& ctx, const std::vector<Var>& parts, int dim) {
  check_parts("stack", parts, -1);
  const Shape& own = parts[0].shape();
  const int d = dim < 0 ? dim + own.rank() + 1 : dim;
  if (d < 0 || d > own.rank() || own.rank() == Shape::kMaxRank) {
    throw UserError(str("[stack] a new dimension ", dim, " for parts ", own, ": must be in [", -own.rank() - 1, ", ",
                        own.rank(), "], and at most ", Shape::kMaxRank, " dimensions in all"));
  }
  std::vector<int64_t> sizes(own.dims().begin(), own.dims().end());
  sizes.insert(sizes.begin() + d, 1);
  const Shape thin{std::span<const int64_t>(sizes)};
  std::vector<Var> raised;
  for (const Var& part : parts) raised.push_back(reshape(ctx, part, thin));
  return concat(ctx, raised, d);
}

Var transpose(Context& ctx, const Var& x, int first, int second) {
  std::vector<int> order(static_cast<size_t>(x.shape().rank()));
  std::iota(order.begin(), order.end(), 0);
  const int a = dimension("transpose", first, x.shape()), b = dimension("transpose", second, x.shape());
  std::swap(order[static_cast<size_t>(a)], order[static_cast<size_t>(b)]);
  return permute_checked(ctx, "transpose", x, order);
}

Var permute(Context& ctx, const Var& x, const std::vector<int>& order) {
  std::vector<int> from;
  std::vector<bool> seen(static_cast<size_t>(x.shape().rank()));
  for (const int dim : order) {
    const int d = dimension("permute", dim, x.shape());
    from.push_back(d);
    seen[static_cast<size_t>(d)] = true;
  }
  if (from.size() != seen.size() || std::find(seen.begin(), seen.end(), false) != seen.end())
    throw UserError(str("[permute] ", order.size(), " dimensions for x ", x.shape(), ": each of its ", seen.size(),
                        " dimensions must be named once"));
  return permute_checked(ctx, "permute", x, from);
}

Var broadcast_to(Context& ctx, const Var& x, const Shape& shape) {
  if (broadcast_shape("broadcast_to", "x", x.shape(), "shape", shape) != shape || x.shape().rank() > shape.rank())
    throw UserError(str("[broadcast_to] x ", x.shape(), " to ", shape, ": x does not repeat to this shape"));
  Var out(repeated(ctx, x.value(), shape));
  if (recording(ctx, {&x})) {
    ctx.tape->record("broadcast_to", {x}, {out}, [&ctx, x, out](Tape&) {
      Tape::accumulate(ctx, x, reduce_to(ctx, Tape::grad_of(out), x.shape()));
    });
  }
  return out;
}

Var stop_gradient(Context&, const Var& x) {
  return Var(x.value());
}

}  // namespace lmx
