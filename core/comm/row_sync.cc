#include "lmx/row_sync.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "lmx/error.h"
#include "lmx/kernels.h"
#include "lmx/trace.h"

namespace lmx {
namespace {

// Shape of n rows of a table.
Shape rows_shape(const Tensor& table, int64_t n) {
  Shape shape = table.shape();
  shape[0] = n;
  return shape;
}

template <class T>
void add_rows(Tensor& to, const RowSparse& from) {
  const auto n = static_cast<int64_t>(from.indices.size());
  const int64_t width = n ? from.rows.numel() / n : 0;
  for (int64_t i = 0; i < n; ++i) {
    T* sum = to.data<T>() + from.indices[static_cast<size_t>(i)] * width;
    const T* row = from.rows.data<T>() + i * width;
    for (int64_t c = 0; c < width; ++c) sum[c] += row[c];
  }
}

}  // namespace

int64_t row_width(const Shape& shape) {
  int64_t width = 1;
  for (int i = 1; i < shape.rank(); ++i) width *= shape[i];
  return width;
}

std::vector<int64_t> even_shares(int64_t rows, int ranks) {
  std::vector<int64_t> shares;
  for (int r = 0; r < ranks; ++r) shares.push_back(chunk_begin(rows, r + 1, ranks) - chunk_begin(rows, r, ranks));
  return shares;
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
  for (const RowSparse& p : grad.pieces)
    table.dtype() == DType::f64 ? add_rows<double>(all, p) : add_rows<float>(all, p);
  return all;
}

GatheredIndices gather_indices(Context& ctx, std::span<const int32_t> own, const std::string& group) {
  const auto n = static_cast<int64_t>(own.size());
  const Tensor count = Tensor::from<int64_t>(ctx.allocator, {1}, std::span(&n, 1), MemClass::communication);
  const Tensor counts = ctx.comm->all_gather(count, RankRows::same(ctx.comm->size(), 1), group);
  GatheredIndices gathered;
  gathered.counts.assign(counts.values<int64_t>().begin(), counts.values<int64_t>().end());
  const Tensor indices = Tensor::from<int32_t>(ctx.allocator, {n}, own, MemClass::communication);
  gathered.all = ctx.comm->all_gather(indices, gathered.counts, group);
  return gathered;
}

std::vector<int32_t> union_of(Context& ctx, const GatheredIndices& gathered, int64_t vocabulary) {
  const Span span(ctx.tracer, "rows.union");
  return ctx.comm->once<std::vector<int32_t>>([&] {
    std::vector<uint64_t> seen(static_cast<size_t>(vocabulary + 63) / 64);
    for (const int32_t row : gathered.all.values<int32_t>()) {
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
  Tensor all =
      ctx.empty(rows_shape(own.rows, static_cast<int64_t>(index.size())), own.rows.dtype(), MemClass::communication);
  const auto n = own.indices.size();
  const size_t bytes = index.empty() ? 0 : static_cast<size_t>(all.bytes()) / index.size();
  auto* to = static_cast<std::byte*>(all.raw());
  const auto* from = static_cast<const std::byte*>(own.rows.raw());
  size_t next = 0;
  for (size_t i = 0; i < index.size(); ++i, to += bytes) {
    if (next < n && own.indices[next] == index[i]) {
      std::memcpy(to, from + bytes * next++, bytes);
    } else {
      std::memset(to, 0, bytes);
    }
  }
  LMX_CHECK(next == n, "row ", next < n ? own.indices[next] : -1, " is not in the union");
  return all;
}

RowSparse pack_rows(Context& ctx, const RowSparse& own, std::span<const int32_t> index) {
  LMX_CHECK(own.unique, "rows repeat");
  const Span span(ctx.tracer, "rows.pack");
  std::vector<size_t> places;
  auto next = index.begin();
  for (size_t i = 0; i < own.indices.size(); ++i) {
    next = std::lower_bound(next, index.end(), own.indices[i]);
    if (next == index.end()) break;
    if (*next == own.indices[i]) places.push_back(i);
  }
  if (places.size() == own.indices.size()) return own;
  RowSparse out;
  out.unique = true;
  out.rows =
      ctx.empty(rows_shape(own.rows, static_cast<int64_t>(places.size())), own.rows.dtype(), MemClass::communication);
  const size_t bytes = static_cast<size_t>(own.rows.bytes()) / own.indices.size();
  auto* to = static_cast<std::byte*>(out.rows.raw());
  for (const size_t place : places) {
    out.indices.push_back(own.indices[place]);
    std::memcpy(to, static_cast<const std::byte*>(own.rows.raw()) + bytes * place, bytes);
    to += bytes;
  }
  return out;
}

}  // namespace lmx
