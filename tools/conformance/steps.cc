#include "conformance/steps.h"

#include <algorithm>

#include "lmx/row_sync.h"

namespace lmx_cli::check {

using namespace lmx;

std::vector<ParameterSpec> parameters() {
  return {{"embedding", {53, 16}, {}, true},
          {"gate", {24, 33}, {}, false},
          {"bias", {29}, {}, false},
          {"edge", {2, 3}, {}, false},
          {"softmax", {101, 8}, {}, true}};
}

Own own_of(int rank, int ranks, int step, const ParameterSpec& p) {
  Own own;
  if (step == 1 && ranks > 1 && rank == ranks - 1) return own;
  const RandomKey key = RandomKey(7).fold(p.name).fold(static_cast<uint64_t>(step)).fold(static_cast<uint64_t>(rank));
  int64_t rows = p.shape[0];
  if (p.sparse) {
    rows = 6 + static_cast<int64_t>(key.below(1, 9));
    for (int64_t i = 0; i < rows; ++i)
      own.indices.push_back(
          static_cast<int32_t>(key.below(100 + static_cast<uint64_t>(i), static_cast<uint64_t>(p.shape[0]))));
    own.indices[1] = own.indices[0];
  }
  for (int64_t i = 0; i < rows * row_width(p.shape); ++i)
    own.values.push_back(static_cast<float>(key.normal(1000 + static_cast<uint64_t>(i))) * 0.1f);
  return own;
}

namespace {

// Returns the selected rows; null means all rows.
const std::set<int32_t>* selected_of(const SelectedRows& selected, const std::string& param, int rank) {
  const auto found = selected.find(param);
  return found == selected.end() ? nullptr : &found->second[static_cast<size_t>(rank)];
}

// Returns, for each r < `ranks`, how many rows have an index that is r modulo `ranks`.
std::vector<int64_t> by_index(const std::set<int32_t>& rows, int ranks) {
  std::vector<int64_t> counts(static_cast<size_t>(ranks));
  for (const int32_t row : rows) ++counts[static_cast<size_t>(row % ranks)];
  return counts;
}

Traffic::Sparse sparse_of(int ranks, int step, const ParameterSpec& p, const SelectedRows& selected) {
  Traffic::Sparse s;
  s.vocabulary = p.shape[0];
  s.width = row_width(p.shape);
  std::set<int32_t> all;
  for (int r = 0; r < ranks; ++r) {
    const Own own = own_of(r, ranks, step, p);
    std::set<int32_t> rows(own.indices.begin(), own.indices.end());
    const std::set<int32_t>* chosen = selected_of(selected, p.name, r);
    if (chosen) std::erase_if(rows, [&](int32_t row) { return !chosen->contains(row); });
    s.indices.push_back(static_cast<int64_t>(chosen ? rows.size() : own.indices.size()));
    s.unique.push_back(static_cast<int64_t>(rows.size()));
    s.pushed.push_back(by_index(rows, ranks));
    all.insert(rows.begin(), rows.end());
  }
  s.union_rows = static_cast<int64_t>(all.size());
  s.owned = by_index(all, ranks);
  return s;
}

}  // namespace

std::vector<double> sum_of(int ranks, int step, const ParameterSpec& p, const SelectedRows& selected) {
  std::vector<double> sum(static_cast<size_t>(p.shape.numel()));
  const auto width = static_cast<size_t>(row_width(p.shape));
  for (int r = 0; r < ranks; ++r) {
    const Own own = own_of(r, ranks, step, p);
    const std::set<int32_t>* chosen = selected_of(selected, p.name, r);
    for (size_t i = 0; i < own.values.size(); ++i) {
      const size_t row = own.indices.empty() ? i / width : static_cast<size_t>(own.indices[i / width]);
      if (!chosen || chosen->contains(static_cast<int32_t>(row)))
        sum[row * width + i % width] += static_cast<double>(own.values[i]);
    }
  }
  return sum;
}

Traffic traffic_of(int rank, int ranks, int step, const std::vector<ParameterSpec>& unit,
                   const SelectedRows& selected) {
  Traffic t;
  t.rank = rank;
  t.ranks = ranks;
  for (const ParameterSpec& p : unit) {
    if (p.sparse) {
      t.sparse.push_back(sparse_of(ranks, step, p, selected));
      continue;
    }
    const std::set<int32_t>* chosen = selected_of(selected, p.name, rank);
    t.dense.push_back({p.shape[0], row_width(p.shape), chosen ? by_index(*chosen, ranks) : std::vector<int64_t>{}});
  }
  return t;
}

}  // namespace lmx_cli::check
