// The gradients of the ranks in the steps in which a sync strategy is checked, and the expected results. They are pure
// functions of rank, step and parameter, so that every rank can compute the gradients of all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/context.h"
#include "lmx/sync.h"

namespace lmx_cli::check {

inline constexpr int kSteps = 5, kSavedStep = 3;  // the state is saved before kSavedStep

// Returns tables with row-sparse gradients, a matrix, and vectors. `tiny` has fewer rows than the largest groups have
// ranks; `edge` has fewer columns than a vector of the CPU has lanes.
std::vector<lmx::ParameterSpec> parameters();

// A rank's gradient of a parameter.
struct Own {
  std::vector<int32_t> indices;  // sparse: with repetitions, in order of appearance
  std::vector<float> values;     // dense: all of them; sparse: one row per index; empty: no gradient
  std::vector<int64_t> pieces;   // sparse: rows of each piece
};
// Step 1: rank 1 has no gradients. Step 2: no rank uses a row of `emb`, and rows of `softmax` cancel. Step 4: zeros and
// negative zeros.
Own own_of(int rank, int step, const lmx::ParameterSpec& p);
// Replaces the gradient of `var` by `own` multiplied by `factor`.
void give(lmx::Context& ctx, lmx::Var& var, const Own& own, float factor = 1);

// By parameter and rank: the rows that SyncStrategy::selected_rows() returns. Parameters of which all rows are
// exchanged are absent.
using SelectedRows = std::map<std::string, std::vector<std::set<int32_t>>>;

// The sum over ranks of the rows that each rank has selected, with the shape of the parameter.
struct Sum {
  std::vector<double> sum, size;  // `size`: the sum of absolute values, which bounds the rounding error
  std::set<int32_t> rows;         // rows that any rank has; empty for a dense gradient of which all rows are exchanged
};
Sum sum_of(int ranks, int step, const lmx::ParameterSpec& p, const SelectedRows& selected);
// Returns the argument of expected_bytes() for a unit.
lmx::Traffic traffic_of(int rank, int ranks, int step, const std::vector<lmx::ParameterSpec>& unit,
                        const SelectedRows& selected);

}  // namespace lmx_cli::check
