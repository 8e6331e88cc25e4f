// Reductions over several dimensions, with n elements together.
//
//   sum    y = sum_i x_i        dx_i = dy
//   mean   y = sum_i x_i / n    dx_i = dy / n
//   max    y = max_i x_i        dx_i = dy at the first largest element, 0 elsewhere
#include "ops/array/reduce.h"

#include <array>
#include <utility>

#include "lmx/array_ops.h"
#include "ops/array/broadcast.h"

namespace lmx {
namespace {

using namespace ops;

// `shape` with the reduced dimensions set to 1, and without them.
struct Reduced {
  Shape kept, dropped;
  int64_t count = 1;  // elements that are reduced to one
};

Reduced reduced(const char* op, const Shape& shape, const std::vector<int>& dims) {
  if (dims.empty()) throw UserError(str("[", op, "] no dimensions of x ", shape, " to reduce"));
  Reduced r{shape, {}, 1};
  std::array<bool, Shape::kMaxRank> gone{};
  for (const int dim : dims) {
    const int d = dimension(op, dim, shape);
    if (std::exchange(gone[static_cast<size_t>(d)], true))
      throw UserError(str("[", op, "] dimension ", dim, " of x ", shape, " is named twice"));
    r.kept[d] = 1;
    r.count *= shape[d];
  }
  std::vector<int64_t> left;
  for (int d = 0; d < shape.rank(); ++d) {
    if (!gone[static_cast<size_t>(d)]) left.push_back(shape[d]);
  }
  if (left.empty()) left.push_back(1);  // a scalar has shape (1)
  r.dropped = Shape(std::span<const int64_t>(left));
  return r;
}

Var add_up(Context& ctx, const char* op, const Var& x, const std::vector<int>& dims, bool keep, bool average) {
  const Reduced r = reduced(op, x.shape(), dims);
  if (average && r.count == 0) throw UserError(str("[mean] x ", x.shape(), ": no elements to average"));
  const double factor = average ? 1 / static_cast<double>(r.count) : 1;
  Tensor y = reduce_to(ctx, x.value(), r.kept);
  if (r.kept == x.shape()) y = y.clone(MemClass::activations);
  scale_in_place(ctx, y, factor);
  Var out(y.reshape(keep ? r.kept : r.dropped));
  if (recording(ctx, {&x})) {
    ctx.tape->record(op, {x}, {out}, [&ctx, x, out, kept = r.kept, factor](Tape&) {
      Tensor dx = repeated(ctx, Tape::grad_of(out).reshape(kept), x.shape());
      scale_in_place(ctx, dx, factor);
      Tape::accumulate(ctx, x, dx);
    });
  }
  return out;
}

}  // namespace

Var sum(Context& ctx, const Var& x, const std::vector<int>& dims, bool keep) {
  return add_up(ctx, "sum", x, dims, keep, false);
}

Var mean(Context& ctx, const Var& x, const std::vector<int>& dims, bool keep) {
  return add_up(ctx, "mean", x, dims, keep, true);
}

Var max(Context& ctx, const Var& x, int dim, bool keep) {
  const Reduced r = reduced("max", x.shape(), {dim});
  if (r.count == 0) throw UserError(str("[max] dimension ", dim, " of x ", x.shape(), ": no elements"));
  const Around a = around(x.shape(), dimension("max", dim, x.shape()));
  Tensor y = ctx.empty(keep ? r.kept : r.dropped, x.value().dtype());
  Tensor places = ctx.empty(y.shape(), DType::i32);
  with_values("max", y, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, Max<T>{x.value().data<T>(), y.data<T>(), places.data<int32_t>(), y.numel(), a.size, a.inner});
  });
  Var out(y);
  if (recording(ctx, {&x})) {
    ctx.tape->record("max", {x}, {out}, [&ctx, x, out, a, places](Tape&) {
      const Tensor dy = Tape::grad_of(out);
      Tensor dx = ctx.zeros(x.shape(), x.value().dtype());
      with_values("max", dx, [&](auto zero) {
        using T = decltype(zero);
        run_kernel(ctx,
                   MaxBackward<T>{dy.data<T>(), places.data<int32_t>(), dx.data<T>(), dy.numel(), a.size, a.inner});
      });
      Tape::accumulate(ctx, x, dx);
    });
  }
  return out;
}

}  // namespace lmx
