#include "conformance/steps.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "lmx/row_sync.h"

namespace lmx_cli::check {

using namespace lmx;

std::vector<ParameterSpec> parameters() {
  return {{"emb", {53, 16}, {}, true},      {"tiny", {3, 5}, {}, true},  {"gate", {24, 33}, {}, false},
          {"bias", {29}, {}, false},        {"edge", {2, 3}, {}, false}, {"softmax", {101, 8}, {}, true},
          {"softmax_bias", {101}, {}, true}};
}

Own own_of(int rank, int step, const ParameterSpec& p) {
  const RandomKey key = RandomKey(7).fold(p.name).fold(static_cast<uint64_t>(step)).fold(static_cast<uint64_t>(rank));
  Own own;
  if (step == 1 && rank == 1) return own;
  if (step == 2 && p.name == "emb") return own;
  int64_t rows = p.shape[0];
  if (p.sparse) {
    rows = 6 + static_cast<int64_t>(key.below(1, 9));
    for (int64_t i = 0; i < rows; ++i) {  // the smaller of two random numbers: frequent words come first
      const auto v = static_cast<uint64_t>(p.shape[0]) - 1;
      own.indices.push_back(static_cast<int32_t>(std::min(key.below(100 + 2 * i, v), key.below(101 + 2 * i, v))));
    }
    own.indices[1] = own.indices[0];
    if (rank == 0) own.indices[2] = static_cast<int32_t>(p.shape[0]) - 1;  // a word that only rank 0 has
    own.pieces = {rows - 4, 0, 4};
  }
  for (int64_t i = 0; i < rows * row_width(p.shape); ++i)
    own.values.push_back(static_cast<float>(key.normal(1000 + static_cast<uint64_t>(i))) * 0.1f);
  if (step == 2 && p.name == "softmax" && rank < 2) {
    own.indices.assign(own.indices.size(), 5);
    own.indices[0] = 7;
    for (size_t i = 0; i < own.values.size(); ++i) own.values[i] = (rank ? -1.0f : 1.0f) * static_cast<float>(i % 9);
  }
  if (step == 4)
    for (size_t i = 0; i < own.values.size(); i += 3) own.values[i] = rank % 2 ? -0.0f : 0.0f;
  return own;
}

void give(Context& ctx, Var& var, const Own& own, float factor) {
  Gradient& g = var.grad();
  g.clear();
  if (own.values.empty()) return;
  std::vector<float> values = own.values;
  for (float& v : values) v *= factor;
  if (own.indices.empty()) {
    g.dense = ctx.upload(Tensor::from<float>(ctx.host, var.shape(), values, MemClass::gradients));
    return;
  }
  const size_t width = values.size() / own.indices.size();
  size_t at = 0;
  for (const int64_t n : own.pieces) {
    const auto count = static_cast<size_t>(n);
    Shape shape = var.shape();
    shape[0] = n;
    const std::span rows(values.data() + at * width, count * width);
    g.pieces.push_back(
        {{own.indices.begin() + static_cast<long>(at), own.indices.begin() + static_cast<long>(at + count)},
         ctx.upload(Tensor::from<float>(ctx.host, shape, rows, MemClass::gradients)),
         false});
    at += count;
  }
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
  for (int r = 0; r < ranks; ++r) {
    const Own own = own_of(r, step, p);
    std::set<int32_t> rows(own.indices.begin(), own.indices.end());
    const std::set<int32_t>* chosen = selected_of(selected, p.name, r);
    if (chosen) std::erase_if(rows, [&](int32_t row) { return !chosen->contains(row); });
    s.indices.push_back(static_cast<int64_t>(chosen ? rows.size() : own.indices.size()));
    s.unique.push_back(static_cast<int64_t>(rows.size()));
    s.pushed.push_back(by_index(rows, ranks));
  }
  const std::set<int32_t> all = sum_of(ranks, step, p, selected).rows;
  s.union_rows = static_cast<int64_t>(all.size());
  s.owned = by_index(all, ranks);
  return s;
}

}  // namespace

Sum sum_of(int ranks, int step, const ParameterSpec& p, const SelectedRows& selected) {
  const auto n = static_cast<size_t>(p.shape.numel()), width = static_cast<size_t>(row_width(p.shape));
  Sum all{std::vector<double>(n), std::vector<double>(n), {}};
  for (int r = 0; r < ranks; ++r) {
    const Own own = own_of(r, step, p);
    const std::set<int32_t>* chosen = selected_of(selected, p.name, r);
    for (size_t i = 0; i < own.values.size(); ++i) {
      const size_t row = own.indices.empty() ? i / width : static_cast<size_t>(own.indices[i / width]);
      if (chosen && !chosen->contains(static_cast<int32_t>(row))) continue;
      if (p.sparse || chosen) all.rows.insert(static_cast<int32_t>(row));
      all.sum[row * width + i % width] += static_cast<double>(own.values[i]);
      all.size[row * width + i % width] += std::abs(static_cast<double>(own.values[i]));
    }
  }
  return all;
}

Traffic traffic_of(int rank, int ranks, int step, const std::vector<ParameterSpec>& unit,
                   const SelectedRows& selected) {
  Traffic t;
  t.rank = rank;
  t.ranks = t.ranks_per_node = ranks;
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
