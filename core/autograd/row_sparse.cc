#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
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

// Sorts by index, by counting 11 bits of it at a time. It is stable: equal indices keep their order of appearance, so
// that the order of the additions is fixed.
void sort_by_index(std::vector<Source>& sources) {
  constexpr int kBits = 11;
  constexpr size_t kValues = size_t{1} << kBits;
  uint32_t most = 0;
  for (const Source& s : sources) most |= static_cast<uint32_t>(s.index);
  std::vector<Source> sorted(sources.size());
  for (int shift = 0; shift < 32 && most >> shift != 0; shift += kBits) {
    std::array<size_t, kValues + 1> begin{};
    const auto digit = [shift](const Source& s) { return (static_cast<uint32_t>(s.index) >> shift) & (kValues - 1); };
    for (const Source& s : sources) ++begin[digit(s) + 1];
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    for (const Source& s : sources) sorted[begin[digit(s)]++] = s;
    sources.swap(sorted);
  }
}

template <class T>
Tensor sum_runs(Context& ctx, const std::vector<Source>& sources, const std::vector<int64_t>& starts,
                const Shape& shape) {
  Tensor sums = ctx.empty(shape, dtype_of<T>, MemClass::gradients);
  const auto n = static_cast<int64_t>(starts.size()) - 1;
  if (n == 0) return sums;
  // The addresses of the rows, then the starts: one upload.
  static_assert(sizeof(const T*) == sizeof(int64_t));
  std::vector<int64_t> words(sources.size() + starts.size());
  std::transform(sources.begin(), sources.end(), words.begin(),
                 [](const Source& source) { return std::bit_cast<int64_t>(source.row); });
  std::copy(starts.begin(), starts.end(), words.end() - static_cast<std::ptrdiff_t>(starts.size()));
  const Uploaded<int64_t> uploaded = ctx.upload(std::move(words));
  run_kernel(ctx, SumRuns<T>{reinterpret_cast<const T* const*>(uploaded.data()), uploaded.data() + sources.size(),
                             sums.data<T>(), n, sums.numel() / n});
  return sums;
}

}  // namespace

RowSparse coalesce(Context& ctx, const std::vector<RowSparse>& pieces) {
  LMX_CHECK(!pieces.empty(), "nothing to coalesce");
  if (pieces.size() == 1 && pieces[0].unique) return pieces[0];
  const Span span(ctx.tracer, "rows.unique");
  const Tensor& like = pieces[0].rows;
  std::vector<Source> sources;
  size_t count = 0;
  for (const RowSparse& piece : pieces) count += piece.indices.size();
  sources.reserve(count);
  for (const RowSparse& piece : pieces) {
    const auto n = static_cast<int64_t>(piece.indices.size());
    const int64_t row_bytes = n ? piece.rows.bytes() / n : 0;
    const auto* base = static_cast<const std::byte*>(piece.rows.raw());
    for (int64_t i = 0; i < n; ++i) sources.push_back({piece.indices[static_cast<size_t>(i)], base + i * row_bytes});
  }
  sort_by_index(sources);
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
  out.rows = like.dtype() == DType::f64 ? sum_runs<double>(ctx, sources, starts, shape)
                                        : sum_runs<float>(ctx, sources, starts, shape);
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
