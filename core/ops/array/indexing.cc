// Elements chosen by index along one dimension, and elements chosen by a condition. For dimension 0 of a 2-D x, with
// index (n, m):
//
//   gather       y[i][j] = x[index[i][j]][j]                    dx[index[i][j]][j] += dy[i][j]
//   scatter      y = x, then y[index[i][j]][j] = s[i][j]        dx = dy, 0 where written; ds = dy at the index, 0 where
//                                                               a later element was written to the same place
//   scatter_add  y = x, then y[index[i][j]][j] += s[i][j]       dx = dy; ds = dy at the index
//   where        y = a where the condition holds, else b        da = dy where it holds, db = dy elsewhere
#include "ops/array/indexing.h"

#include <algorithm>
#include <numeric>

#include "lmx/array_ops.h"

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
  const std::span<const int32_t> id = index.values<int32_t>();
  const int64_t inner = walk.step(0);
  if (places.empty()) return places;
  for_runs(walk, 0, index.numel(), [&](int64_t at, const std::array<int64_t, 1>& o, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t k = id[static_cast<size_t>(at + i)];
      if (k < 0 || k >= x[d]) fail(str("element ", at + i, " is ", k, ", must be in [0, ", x[d], ")"));
      places[static_cast<size_t>(at + i)] = o[0] + i * inner + k * step;
    }
  });
  return places;
}

// The elements of x at the places, in the shape of the index.
Tensor taken(Context& ctx, const Tensor& x, const Uploaded<int64_t>& places, const Shape& shape) {
  Tensor y = ctx.empty(shape, x.dtype());
  with_values("gather", x, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, Take<T>{x.data<T>(), places.data(), y.data<T>(), y.numel()});
  });
  return y;
}

// Writes the values, or zeros if `values` is null.
void put(Context& ctx, Tensor& x, const Uploaded<int64_t>& places, const Tensor* values) {
  with_values("scatter", x, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, Put<T>{values ? values->data<T>() : nullptr, places.data(), x.data<T>(), places.size()});
  });
}

// The places of elements that are added, and for a device the elements by place.
struct AddedPlaces {
  Uploaded<int64_t> places, order, starts;
};

AddedPlaces added_places(const Context& ctx, std::vector<int64_t> places) {
  AddedPlaces added;
  if (ctx.device.kind != Device::Kind::cpu) {
    std::vector<int64_t> order(places.size()), starts;
    std::iota(order.begin(), order.end(), 0);
    const auto place = [&](int64_t i) { return places[static_cast<size_t>(i)]; };
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return place(a) < place(b); });
    for (size_t k = 0; k < order.size(); ++k)
      if (k == 0 || place(order[k]) != place(order[k - 1])) starts.push_back(static_cast<int64_t>(k));
    starts.push_back(static_cast<int64_t>(order.size()));
    added.order = ctx.upload(std::move(order));
    added.starts = ctx.upload(std::move(starts));
  }
  added.places = ctx.upload(std::move(places));
  return added;
}

void add_at(Context& ctx, Tensor& x, const AddedPlaces& at, const Tensor& values) {
  with_values("scatter_add", x, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, AddAt<T>{values.data<T>(), at.places.data(), x.data<T>(), at.places.size(), at.order.data(),
                             at.starts.data(), at.starts.size() - 1});
  });
}

void check_source(const char* op, const Var& x, const Tensor& index, const Var& source) {
  check_same_type(op, "x", x.value(), "source", source.value());
  if (source.shape() == index.shape()) return;
  throw UserError(str("[", op, "] source ", source.shape(), " and index ", index.shape(), ": shapes must be equal"));
}

// The places, but -1 for an element if a later one has the same place.
std::vector<int64_t> last_of_each(std::vector<int64_t> places, int64_t numel) {
  std::vector<bool> written(static_cast<size_t>(numel));
  for (size_t i = places.size(); i-- > 0;) {
    const auto place = static_cast<size_t>(places[i]);
    if (written[place]) places[i] = -1;
    written[place] = true;
  }
  return places;
}

// a where the condition is not 0, else b, broadcast to `shape`.
Tensor selected(Context& ctx, const Tensor& condition, const Tensor& a, const Tensor& b, const Shape& shape) {
  Tensor y = ctx.empty(shape, a.dtype());
  const Walk<3> walk = walk_of<3>(shape, {&condition.shape(), &a.shape(), &b.shape()});
  with_values("where", y, [&](auto zero) {
    using T = decltype(zero);
    run_kernel(ctx, Select<T>{condition.data<uint8_t>(), a.data<T>(), b.data<T>(), y.data<T>(), walk, y.numel()});
  });
  return y;
}

}  // namespace

Var gather(Context& ctx, const Var& x, int dim, const Tensor& index) {
  std::vector<int64_t> all = places_of("gather", x.shape(), dim, index);
  const AddedPlaces at =
      recording(ctx, {&x}) ? added_places(ctx, std::move(all)) : AddedPlaces{ctx.upload(std::move(all)), {}, {}};
  Var out(taken(ctx, x.value(), at.places, index.shape()));
  if (recording(ctx, {&x})) {
    ctx.tape->record("gather", {x}, {out}, [&ctx, x, out, at](Tape&) {
      Tensor dx = ctx.zeros(x.shape(), x.value().dtype());
      add_at(ctx, dx, at, Tape::grad_of(out));
      Tape::accumulate(ctx, x, dx);
    });
  }
  return out;
}

Var scatter(Context& ctx, const Var& x, int dim, const Tensor& index, const Var& source) {
  std::vector<int64_t> all = places_of("scatter", x.shape(), dim, index);
  check_source("scatter", x, index, source);
  const Uploaded<int64_t> places = ctx.upload(last_of_each(std::move(all), x.value().numel()));
  Tensor y = x.value().clone(MemClass::activations);
  put(ctx, y, places, &source.value());
  Var out(y);
  if (recording(ctx, {&x, &source})) {
    ctx.tape->record("scatter", {x, source}, {out}, [&ctx, x, source, out, places](Tape&) {
      const Tensor dy = Tape::grad_of(out);
      if (source.requires_grad()) Tape::accumulate(ctx, source, taken(ctx, dy, places, source.shape()));
      if (!x.requires_grad()) return;
      Tensor dx = dy.clone(MemClass::activations);
      put(ctx, dx, places, nullptr);
      Tape::accumulate(ctx, x, dx);
    });
  }
  return out;
}

Var scatter_add(Context& ctx, const Var& x, int dim, const Tensor& index, const Var& source) {
  std::vector<int64_t> all = places_of("scatter_add", x.shape(), dim, index);
  check_source("scatter_add", x, index, source);
  const AddedPlaces at = added_places(ctx, std::move(all));
  Tensor y = x.value().clone(MemClass::activations);
  add_at(ctx, y, at, source.value());
  Var out(y);
  if (recording(ctx, {&x, &source})) {
    ctx.tape->record("scatter_add", {x, source}, {out}, [&ctx, x, source, out, at](Tape&) {
      const Tensor dy = Tape::grad_of(out);
      if (source.requires_grad()) Tape::accumulate(ctx, source, taken(ctx, dy, at.places, source.shape()));
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
  const Tensor chosen = ctx.upload(condition);
  Var out(selected(ctx, chosen, a.value(), b.value(), shape));
  if (recording(ctx, {&a, &b})) {
    ctx.tape->record("where", {a, b}, {out}, [&ctx, chosen, a, b, out](Tape&) {
      const Tensor dy = Tape::grad_of(out), zero = scalar(ctx, 0, dy.dtype()).reshape(Shape{});
      const Shape& whole = dy.shape();
      if (a.requires_grad())
        Tape::accumulate(ctx, a, reduce_to(ctx, selected(ctx, chosen, dy, zero, whole), a.shape()));
      if (b.requires_grad())
        Tape::accumulate(ctx, b, reduce_to(ctx, selected(ctx, chosen, zero, dy, whole), b.shape()));
    });
  }
  return out;
}

}  // namespace lmx
