// The gradients of the ranks in the steps in which a sync strategy is checked, and the expected results.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lmx/sync.h"

namespace lmx_cli::check {

// Returns tables with row-sparse gradients, a matrix, and vectors, one of which is smaller than a group of ranks.
std::vector<lmx::ParameterSpec> parameters();

// A rank's gradient of a parameter, a function of rank and step. In step 1 the last of several ranks has no gradient.
struct Own {
  std::vector<int32_t> indices;  // sparse: with repetitions
  std::vector<float> values;     // empty: no gradient
};
Own own_of(int rank, int ranks, int step, const lmx::ParameterSpec& p);

// By parameter and rank: the rows that SyncStrategy::selected_rows() returns. Parameters of which all rows are
// exchanged are absent.
using SelectedRows = std::map<std::string, std::vector<std::set<int32_t>>>;

// Returns the sum over ranks of the rows that each rank has selected, with the shape of the parameter.
std::vector<double> sum_of(int ranks, int step, const lmx::ParameterSpec& p, const SelectedRows& selected);
// Returns the argument of expected_bytes() for a unit.
lmx::Traffic traffic_of(int rank, int ranks, int step, const std::vector<lmx::ParameterSpec>& unit,
                        const SelectedRows& selected);

}  // namespace lmx_cli::check
