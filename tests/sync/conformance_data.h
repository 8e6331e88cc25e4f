// The gradients of the ranks in the conformance suite. They are a pure function of (rank, ranks, step, parameter), so
// that every rank can compute the gradients of all ranks and the expected result.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/parameters.h"
#include "lmx/random.h"
#include "lmx/row_sampling.h"
#include "lmx/sync.h"

namespace lmx::sync_test {

inline constexpr int kSteps = 5, kSavedStep = 3;  // the state is saved before this step

// In the order of declaration. `tiny` has fewer rows than there are ranks; `edge` has fewer columns than a vector has
// lanes.
inline std::vector<ParameterSpec> parameters() {
  return {{"emb", {53, 16}, {}, true},      {"tiny", {3, 5}, {}, true},  {"gate", {24, 33}, {}, false},
          {"bias", {29}, {}, false},        {"edge", {2, 3}, {}, false}, {"softmax", {101, 8}, {}, true},
          {"softmax_bias", {101}, {}, true}};
}

inline int64_t width_of(const ParameterSpec& p) {
  return p.shape.numel() / p.shape[0];
}

struct Own {
  std::vector<int32_t> indices;  // sparse: with repetitions, in order of appearance
  std::vector<float> values;     // dense: all of them; sparse: one row per index; empty: no gradient
  std::vector<int64_t> pieces;   // sparse: rows of each piece
};

// Step 1: rank 1 has no sequences. Step 2: no rank uses a row of `emb`, and softmax rows cancel. Step 4: zeros and
// negative zeros.
inline Own own_of(int rank, int step, const ParameterSpec& p) {
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
    if (rank == 0) own.indices[2] = static_cast<int32_t>(p.shape[0]) - 1;  // a word that only rank 0 has
    own.pieces = {rows - 4, 0, 4};
  }
  for (int64_t i = 0; i < rows * width_of(p); ++i)
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

// The gradients that `sampled_rows` may use. No rank has a batch here, so the words are the frequent and the random
// ones.
struct Selection {
  static RowRule rule() { return {.shares = {20, 30}, .hidden_q = 50, .softmax = "softmax", .embedding = "emb|tiny"}; }
  RandomKey key;  // of the strategy
  bool on = false;
  // Null: all rows.
  std::unique_ptr<std::vector<int32_t>> rows(int rank, int step, const ParameterSpec& p) const {
    if (!on) return nullptr;
    RowSelector selector(rule(), parameters(), key);
    const RowSelector::Kind kind = selector.kind(p.name);
    if (kind != RowSelector::Kind::softmax && kind != RowSelector::Kind::hidden) return nullptr;
    StepPlan plan;
    plan.step = step;
    selector.begin_step(plan, rank, 0, {}, {});
    return std::make_unique<std::vector<int32_t>>(selector.rows(p.name));
  }
  // own_of() without the rows that are not selected. The rest of a matrix is row-sparse.
  Own own(int rank, int step, const ParameterSpec& p) const {
    Own all = own_of(rank, step, p);
    const auto rows_ = rows(rank, step, p);
    if (!rows_ || all.values.empty()) return all;
    const auto width = static_cast<size_t>(width_of(p));
    Own some;
    for (size_t i = 0; i < all.values.size() / width; ++i) {
      const int32_t row = p.sparse ? all.indices[i] : static_cast<int32_t>(i);
      if (!std::binary_search(rows_->begin(), rows_->end(), row)) continue;
      some.indices.push_back(row);
      some.values.insert(some.values.end(), all.values.begin() + static_cast<long>(i * width),
                         all.values.begin() + static_cast<long>((i + 1) * width));
    }
    return some;
  }
};

inline void give(Context& ctx, Var& var, const Own& own) {
  Gradient& g = var.grad();
  g.clear();
  if (own.values.empty()) return;
  if (own.indices.empty()) {
    g.dense = Tensor::from<float>(ctx.allocator, var.shape(), own.values, MemClass::gradients);
    return;
  }
  const size_t width = own.values.size() / own.indices.size();
  size_t at = 0;
  for (const int64_t n : own.pieces) {
    const auto count = static_cast<size_t>(n);
    Shape shape = var.shape();
    shape[0] = n;
    const std::span values(own.values.data() + at * width, count * width);
    g.pieces.push_back(
        {{own.indices.begin() + static_cast<long>(at), own.indices.begin() + static_cast<long>(at + count)},
         Tensor::from<float>(ctx.allocator, shape, values, MemClass::gradients),
         false});
    at += count;
  }
}

// The sum over ranks in f64, and the sum of absolute values, which bounds the rounding error.
struct Reference {
  std::set<int32_t> rows;  // rows that any rank has
  std::vector<double> sum, size;
};
inline Reference reference(int ranks, int step, const ParameterSpec& p, const Selection& selection = {}) {
  const auto n = static_cast<size_t>(p.shape.numel()), width = static_cast<size_t>(width_of(p));
  Reference ref{{}, std::vector<double>(n), std::vector<double>(n)};
  for (int r = 0; r < ranks; ++r) {
    const Own own = selection.own(r, step, p);
    ref.rows.insert(own.indices.begin(), own.indices.end());
    for (size_t i = 0; i < own.values.size(); ++i) {
      const size_t to = !own.indices.empty() ? static_cast<size_t>(own.indices[i / width]) * width + i % width : i;
      ref.sum[to] += static_cast<double>(own.values[i]);
      ref.size[to] += std::abs(static_cast<double>(own.values[i]));
    }
  }
  return ref;
}

// The number of rows whose index is r modulo `ranks`, for each r.
template <class Rows>
std::vector<int64_t> owned_of(const Rows& rows, int ranks) {
  std::vector<int64_t> owned(static_cast<size_t>(ranks));
  for (const int32_t row : rows) ++owned[static_cast<size_t>(row % ranks)];
  return owned;
}

inline Traffic traffic(int rank, int ranks, int step, const std::vector<ParameterSpec>& unit,
                       const Selection& selection = {}) {
  Traffic t;
  t.rank = rank;
  t.ranks = ranks;
  for (const ParameterSpec& p : unit) {
    if (!p.sparse) {
      const auto rows = selection.rows(rank, step, p);
      t.dense.push_back({p.shape[0], width_of(p), rows ? owned_of(*rows, ranks) : std::vector<int64_t>()});
      continue;
    }
    Traffic::Sparse s;
    s.vocabulary = p.shape[0];
    s.width = width_of(p);
    for (int r = 0; r < ranks; ++r) {
      const Own own = selection.own(r, step, p);
      s.indices.push_back(static_cast<int64_t>(own.indices.size()));
      s.unique.push_back(static_cast<int64_t>(std::set(own.indices.begin(), own.indices.end()).size()));
    }
    const Reference ref = reference(ranks, step, p, selection);
    s.union_rows = static_cast<int64_t>(ref.rows.size());
    s.owned = owned_of(ref.rows, ranks);
    for (int r = 0; r < ranks; ++r) {
      const Own own = selection.own(r, step, p);
      s.pushed.push_back(owned_of(std::set(own.indices.begin(), own.indices.end()), ranks));
    }
    t.sparse.push_back(s);
  }
  return t;
}

}  // namespace lmx::sync_test
