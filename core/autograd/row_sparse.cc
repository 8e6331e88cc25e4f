#include <algorithm>
#include <utility>

#include "autograd/gradient_sums.h"
#include "lmx/autograd.h"
#include "lmx/error.h"
#include "lmx/trace.h"

namespace lmx {
namespace {

// A row of a piece: its table index and its address in the memory of the device.
struct Source {
  int32_t index;
  const void* row;
};

template <class T>
Tensor sum_runs(Context& ctx, const std::vector<Source>& sources, std::vector<int64_t> starts, const Shape& shape) {
  Tensor sums = ctx.empty(shape, dtype_of<T>, MemClass::gradients);
  const auto n = static_cast<int64_t>(starts.size()) - 1;
  if (n == 0) return sums;
  std::vector<const T*> addresses(sources.size());
  std::transform(sources.begin(), sources.end(), addresses.begin(),
                 [](const Source& source) { return static_cast<const T*>(source.row); });
  const Uploaded<const T*> rows = ctx.upload(std::move(addresses));
  const Uploaded<int64_t> runs = ctx.upload(std::move(starts));
  run_kernel(ctx, SumRuns<T>{rows.data(), runs.data(), sums.data<T>(), n, sums.numel() / n});
  return sums;
}

}  // namespace

RowSparse coalesce(Context& ctx, const std::vector<RowSparse>& pieces) {
  LMX_CHECK(!pieces.empty(), "nothing to coalesce");
  if (pieces.size() == 1 && pieces[0].unique) return pieces[0];
  const Span span(ctx.tracer, "rows.unique");
  const Tensor& like = pieces[0].rows;
  std::vector<Source> sources;
  for (const RowSparse& piece : pieces) {
    const auto n = static_cast<int64_t>(piece.indices.size());
    const int64_t row_bytes = n ? piece.rows.bytes() / n : 0;
    const auto* base = static_cast<const std::byte*>(piece.rows.raw());
    for (int64_t i = 0; i < n; ++i) sources.push_back({piece.indices[static_cast<size_t>(i)], base + i * row_bytes});
  }
  // Stable: equal indices keep their order of appearance, so that the order of the additions is fixed.
  std::stable_sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) { return a.index < b.index; });
  RowSparse out;
  out.unique = true;
  std::vector<int64_t> starts;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (i == 0 || sources[i].index != sources[i - 1].index) {
      out.indices.push_back(sources[i].index);
      starts.push_back(static_cast<int64_t>(i));
    }
  }
  starts.push_back(static_cast<int64_t>(sources.size()));
  Shape shape = like.shape();
  shape[0] = static_cast<int64_t>(out.indices.size());
  out.rows = like.dtype() == DType::f64 ? sum_runs<double>(ctx, sources, std::move(starts), shape)
                                        : sum_runs<float>(ctx, sources, std::move(starts), shape);
  return out;
}

void Gradient::clear() {
  dense = operand = Tensor();
  pieces.clear();
}

void Gradient::coalesce(Context& ctx) {
  if (pieces.empty() || (pieces.size() == 1 && pieces[0].unique)) return;
  RowSparse whole = lmx::coalesce(ctx, pieces);
  pieces.clear();
  pieces.push_back(std::move(whole));
}

}  // namespace lmx
