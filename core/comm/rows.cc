#include "comm/rows.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "autograd/gradient_sums.h"
#include "backend/cuda.h"
#include "lmx/error.h"
#include "lmx/row_sync.h"
#include "lmx/trace.h"

namespace lmx::comm {
namespace {

template <class T>
Tensor typed(Context& ctx, const Tensor& t, const Uploaded<int32_t>& at) {
  Shape shape = t.shape();
  shape[0] = at.size();
  Tensor out = ctx.empty(shape, dtype_of<T>, MemClass::communication);
  const int64_t width = row_width(shape);
  run_kernel(ctx, CopyRows<T>{{t.data<T>(), width, 0, at.data()}, {}, {out.data<T>(), width}, at.size(), width});
  return out;
}

}  // namespace

Rows::Rows(Tensor t, Uploaded<int32_t> places)
    : tensor(std::move(t)), at(std::move(places)), width(row_width(tensor.shape())) {}

RowsAt<float> Rows::from(int64_t first, int64_t column) const {
  Tensor t = tensor;
  float* base = t.defined() ? t.data<float>() : nullptr;
  if (at.data()) return {base, width, column, at.data() + first, pages.data()};
  return {base ? base + first * width : nullptr, width, column};
}

Context context_of(const Tensor& t) {
  Context ctx;
  compute_on(ctx, t.device());
  ctx.allocator = t.allocator();
  return ctx;
}

Tensor joined(Context& ctx, DType type, std::span<const Tensor> parts) {
  int64_t total = 0, at = 0;
  for (const Tensor& part : parts) total += part.numel();
  Tensor all = ctx.empty({total}, type, MemClass::communication);
  for (const Tensor& part : parts) {
    all.slice(at, at + part.numel()).copy_from(part.reshape({-1}));
    at += part.numel();
  }
  return all;
}

Tensor gather_rows(Context& ctx, const Tensor& t, const Uploaded<int32_t>& at) {
  return t.dtype() == DType::f64 ? typed<double>(ctx, t, at) : typed<float>(ctx, t, at);
}

}  // namespace lmx::comm

namespace lmx {
namespace {

// Shape of n rows of a table.
Shape rows_shape(const Tensor& table, int64_t n) {
  Shape shape = table.shape();
  shape[0] = n;
  return shape;
}

}  // namespace

int64_t row_width(const Shape& shape) {
  int64_t width = 1;
  for (int i = 1; i < shape.rank(); ++i) width *= shape[i];
  return width;
}

RowSparse rows_of(Context& ctx, const Gradient& grad, const Tensor& table) {
  if (grad.pieces.size() == 1) return grad.pieces[0];
  RowSparse all;
  if (grad.dense.defined()) {
    all.indices.resize(static_cast<size_t>(table.dim(0)));
    std::iota(all.indices.begin(), all.indices.end(), 0);
    all.rows = grad.dense;
    all.unique = true;
    return all;
  }
  for (const RowSparse& p : grad.pieces) all.indices.insert(all.indices.end(), p.indices.begin(), p.indices.end());
  all.rows =
      ctx.empty(rows_shape(table, static_cast<int64_t>(all.indices.size())), table.dtype(), MemClass::communication);
  int64_t at = 0;
  for (const RowSparse& p : grad.pieces) {
    const auto n = static_cast<int64_t>(p.indices.size());
    all.rows.slice(at, at + n).copy_from(p.rows);
    at += n;
  }
  all.unique = all.indices.empty();
  return all;
}

Tensor dense_of(Context& ctx, const Gradient& grad, const Tensor& table) {
  if (grad.dense.defined()) return grad.dense;
  Tensor all = ctx.zeros(table.shape(), table.dtype(), MemClass::communication);
  for (const RowSparse& p : grad.pieces) add_rows(ctx, all, p);
  return all;
}

GatheredIndices gather_indices(Context& ctx, std::span<const int32_t> own, const std::string& group) {
  const auto n = static_cast<int64_t>(own.size());
  const Tensor count = Tensor::from<int64_t>(ctx.host, {1}, std::span(&n, 1), MemClass::communication);
  const Tensor counts = ctx.comm->all_gather(count, RankRows::same(ctx.comm->size(), 1), group);
  GatheredIndices gathered;
  const auto reading = ctx.read<int64_t>(counts);
  gathered.counts.assign(reading.get().begin(), reading.get().end());
  const Tensor indices = Tensor::from<int32_t>(ctx.host, {n}, own, MemClass::communication);
  gathered.all = ctx.comm->all_gather(indices, gathered.counts, group);
  return gathered;
}

std::vector<int32_t> union_of(Context& ctx, const GatheredIndices& gathered, int64_t vocabulary) {
  const Span span(ctx.tracer, "rows.union");
  return ctx.comm->once<std::vector<int32_t>>([&] {
    std::vector<uint64_t> seen(static_cast<size_t>(vocabulary + 63) / 64);
    const auto reading = ctx.read<int32_t>(gathered.all);
    for (const int32_t row : reading.get()) {
      LMX_CHECK(row >= 0 && row < vocabulary, "row ", row, " of a table of ", vocabulary);
      seen[static_cast<size_t>(row) / 64] |= uint64_t{1} << (row % 64);
    }
    std::vector<int32_t> rows;
    for (size_t word = 0; word < seen.size(); ++word) {
      for (uint64_t left = seen[word]; left; left &= left - 1)
        rows.push_back(static_cast<int32_t>(word * 64 + static_cast<size_t>(std::countr_zero(left))));
    }
    return rows;
  });
}

Tensor spread_rows(Context& ctx, const RowSparse& own, std::span<const int32_t> index) {
  LMX_CHECK(own.unique, "rows repeat");
  const Span span(ctx.tracer, "rows.spread");
  const auto n = own.indices.size();
  std::vector<int32_t> places(index.size(), -1);
  size_t next = 0;
  for (size_t i = 0; i < index.size() && next < n; ++i)
    if (own.indices[next] == index[i]) places[i] = static_cast<int32_t>(next++);
  LMX_CHECK(next == n, "row ", next < n ? own.indices[next] : -1, " is not in the union");
  return comm::gather_rows(ctx, own.rows, ctx.upload(std::move(places)));
}

RowSparse pack_rows(Context& ctx, const RowSparse& own, std::span<const int32_t> index) {
  LMX_CHECK(own.unique, "rows repeat");
  const Span span(ctx.tracer, "rows.pack");
  std::vector<int32_t> places;
  RowSparse out;
  auto next = index.begin();
  for (size_t i = 0; i < own.indices.size(); ++i) {
    next = std::lower_bound(next, index.end(), own.indices[i]);
    if (next == index.end()) break;
    if (*next != own.indices[i]) continue;
    places.push_back(static_cast<int32_t>(i));
    out.indices.push_back(own.indices[i]);
  }
  if (places.size() == own.indices.size()) return own;
  out.unique = true;
  out.rows = comm::gather_rows(ctx, own.rows, ctx.upload(std::move(places)));
  return out;
}

}  // namespace lmx
