// Elements chosen by index along one dimension, and elements chosen by a condition. For dimension 0 of a 2-D x, with
// index (n, m):
//
//   gather       y[i][j] = x[index[i][j]][j]                    dx[index[i][j]][j] += dy[i][j]
//   scatter      y = x, then y[index[i][j]][j] = s[i][j]        dx = dy, 0 where written; ds = dy at the index, 0 where
//                                                               a later element was written to the same place
//   scatter_add  y = x, then y[index[i][j]][j] += s[i][j]       dx = dy; ds = dy at the index
//   where        y = a where the condition holds, else b        da = dy where it holds, db = dy elsewhere
#include "lmx/array_ops.h"
#include "ops/broadcast.h"

namespace lmx {
namespace {

using namespace ops;

// The position in x that each element of the index names.
std::vector<int64_t> places_of(const char* op, const Shape& x, int dim, const Tensor& index) {
  const auto fail = [&](const std::string& why) {
    throw UserError(str("[", op, "] index ", describe(index), " along dimension ", dim, " of x ", x, ": ", why));
  };
  const int d = dimension(op, dim, x);
  if (index.dtype() != DType::i32) fail("i32 expected");
  if (index.rank() != x.rank()) fail("as many dimensions as x expected");
  Walk<1> walk;
  walk.add(1, {});
  int64_t stride = x.numel(), step = 1;
  for (int i = 0; i < x.rank(); ++i) {
    stride = x[i] ? stride / x[i] : 0;
    if (i == d) step = stride;
    if (i != d && index.dim(i) > x[i]) fail(str("dimension ", i, " is larger than that of x"));
    walk.add(index.dim(i), {i == d ? 0 : stride});
  }
  std::vector<int64_t> places(static_cast<size_t>(index.numel()));
  const int32_t* id = index.data<int32_t>();
  const int64_t inner = walk.stride[0][static_cast<size_t>(walk.rank - 1)];
  if (places.empty()) return places;
  for_runs(walk, 0, index.numel(), [&](int64_t at, const std::array<int64_t, 1>& o, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t k = id[at + i];
      if (k < 0 || k >= x[d]) fail(str("element ", at + i, " is ", k, ", must be in [0, ", x[d], ")"));
      places[static_cast<size_t>(at + i)] = o[0] + i * inner + k * step;
    }
  });
  return places;
}

template <class T>
void take(const T* x, const std::vector<int64_t>& places, T* y) {
  parallel_for(static_cast<int64_t>(places.size()), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = x[places[static_cast<size_t>(i)]];
  });
}

// Gradients of the gathered elements, in the shape of the index.
Tensor taken(Context& ctx, const Tensor& x, const std::vector<int64_t>& places, const Shape& shape) {
  Tensor y = ctx.empty(shape, x.dtype());
  with_values("gather", x, [&](auto zero) {
    using T = decltype(zero);
    take<T>(x.data<T>(), places, y.data<T>());
  });
  return y;
}

// x[places] += values, in ascending order of the elements, so that the order of additions is fixed for repeated places.
void add_at(Tensor& x, const std::vector<int64_t>& places, const Tensor& values) {
  with_values("scatter_add", x, [&](auto zero) {
    using T = decltype(zero);
    T* to = x.data<T>();
    const T* from = values.data<T>();
    for (size_t i = 0; i < places.size(); ++i) to[places[i]] += from[i];
  });
}

void check_source(const char* op, const Var& x, const Tensor& index, const Var& source) {
  check_same_type(op, "x", x.value(), "source", source.value());
  if (source.shape() == index.shape()) return;
  throw UserError(str("[", op, "] source ", source.shape(), " and index ", index.shape(), ": shapes must be equal"));
}

// Marks the elements of the index whose value is kept: the last one of each place.
std::vector<bool> last_of_each(const std::vector<int64_t>& places, int64_t numel) {
  std::vector<bool> written(static_cast<size_t>(numel)), stays(places.size());
  for (size_t i = places.size(); i-- > 0;) {
    stays[i] = !written[static_cast<size_t>(places[i])];
    written[static_cast<size_t>(places[i])] = true;
  }
  return stays;
}

// dy where the condition equals `holds`, else 0.
Tensor masked(const Tensor& condition, const Tensor& dy, bool holds) {
  Tensor dx = dy.like(MemClass::activations);
  const Walk<1> walk = walk_of<1>(dy.shape(), {&condition.shape()});
  const int64_t step = walk.stride[0][static_cast<size_t>(walk.rank - 1)];
  const uint8_t* c = condition.data<uint8_t>();
  with_values("where", dy, [&](auto zero) {
    using T = decltype(zero);
    const T* from = dy.data<T>();
    T* to = dx.data<T>();
    parallel_for(dy.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for_runs(walk, begin, end, [&](int64_t at, const std::array<int64_t, 1>& o, int64_t n) {
        for (int64_t i = 0; i < n; ++i) to[at + i] = (c[o[0] + i * step] != 0) == holds ? from[at + i] : T(0);
      });
    });
  });
  return dx;
}

}  // namespace

Var gather(Context& ctx, const Var& x, int dim, const Tensor& index) {
  std::vector<int64_t> places = places_of("gather", x.shape(), dim, index);
  Var out(taken(ctx, x.value(), places, index.shape()));
  if (recording(ctx, {&x})) {
    ctx.tape->record("gather", {x}, {out}, [&ctx, x, out, places = std::move(places)](Tape&) {
      Tensor dx = ctx.zeros(x.shape(), x.value().dtype());
      add_at(dx, places, Tape::grad_of(out));
      Tape::accumulate(ctx, x, dx);
    });
  }
  return out;
}

Var scatter(Context& ctx, const Var& x, int dim, const Tensor& index, const Var& source) {
  std::vector<int64_t> places = places_of("scatter", x.shape(), dim, index);
  check_source("scatter", x, index, source);
  Tensor y = x.value().clone(MemClass::activations);
  const auto put = [&places](Tensor& to, auto&& value) {
    with_values("scatter", to, [&](auto zero) {
      using T = decltype(zero);
      for (size_t i = 0; i < places.size(); ++i) to.data<T>()[places[i]] = value(zero, i);
    });
  };
  put(y, [&](auto zero, size_t i) { return source.value().data<decltype(zero)>()[i]; });
  Var out(y);
  if (recording(ctx, {&x, &source})) {
    ctx.tape->record("scatter", {x, source}, {out}, [&ctx, x, source, out, places](Tape&) {
      const Tensor dy = Tape::grad_of(out);
      const std::vector<bool> stays = last_of_each(places, x.value().numel());
      with_values("scatter", dy, [&](auto zero) {
        using T = decltype(zero);
        if (source.requires_grad()) {
          Tensor ds = taken(ctx, dy, places, source.shape());
          for (size_t i = 0; i < places.size(); ++i) {
            if (!stays[i]) ds.data<T>()[i] = T(0);
          }
          Tape::accumulate(ctx, source, ds);
        }
        if (x.requires_grad()) {
          Tensor dx = dy.clone(MemClass::activations);
          for (const int64_t place : places) dx.data<T>()[place] = T(0);
          Tape::accumulate(ctx, x, dx);
        }
      });
    });
  }
  return out;
}

Var scatter_add(Context& ctx, const Var& x, int dim, const Tensor& index, const Var& source) {
  std::vector<int64_t> places = places_of("scatter_add", x.shape(), dim, index);
  check_source("scatter_add", x, index, source);
  Tensor y = x.value().clone(MemClass::activations);
  add_at(y, places, source.value());
  Var out(y);
  if (recording(ctx, {&x, &source})) {
    ctx.tape->record("scatter_add", {x, source}, {out}, [&ctx, x, source, out, places = std::move(places)](Tape&) {
      const Tensor dy = Tape::grad_of(out);
      if (source.requires_grad()) Tape::accumulate(ctx, source, taken(ctx, dy, places, source.shape()));
      Tape::accumulate(ctx, x, dy);
    });
  }
  return out;
}

Var where(Context& ctx, const Tensor& condition, const Var& a, const Var& b) {
  if (condition.dtype() != DType::u8) throw UserError(str("[where] condition ", describe(condition), ": u8 expected"));
  check_same_type("where", "a", a.value(), "b", b.value());
  const Shape both = broadcast_shape("where", "a", a.shape(), "b", b.shape());
  const Shape shape = broadcast_shape("where", "condition", condition.shape(), "values", both);
  Tensor y = ctx.empty(shape, a.value().dtype());
  const Walk<3> walk = walk_of<3>(shape, {&condition.shape(), &a.shape(), &b.shape()});
  const auto last = static_cast<size_t>(walk.rank - 1);
  const int64_t sc = walk.stride[0][last], sa = walk.stride[1][last], sb = walk.stride[2][last];
  const uint8_t* c = condition.data<uint8_t>();
  with_values("where", y, [&](auto zero) {
    using T = decltype(zero);
    const T *pa = a.value().data<T>(), *pb = b.value().data<T>();
    T* py = y.data<T>();
    parallel_for(y.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for_runs(walk, begin, end, [&](int64_t at, const std::array<int64_t, 3>& o, int64_t n) {
        for (int64_t i = 0; i < n; ++i) py[at + i] = c[o[0] + i * sc] != 0 ? pa[o[1] + i * sa] : pb[o[2] + i * sb];
      });
    });
  });
  Var out(y);
  if (recording(ctx, {&a, &b})) {
    ctx.tape->record("where", {a, b}, {out}, [&ctx, condition, a, b, out](Tape&) {
      const Tensor dy = Tape::grad_of(out);
      if (a.requires_grad()) Tape::accumulate(ctx, a, reduce_to(ctx, masked(condition, dy, true), a.shape()));
      if (b.requires_grad()) Tape::accumulate(ctx, b, reduce_to(ctx, masked(condition, dy, false), b.shape()));
    });
  }
  return out;
}

}  // namespace lmx
