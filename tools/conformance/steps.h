// What ranks bring to the steps in which a sync strategy is checked, and what has to come of it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lmx/sync.h"

namespace lmx_cli::check {

// Tables with row-sparse gradients, a matrix, vectors, one smaller than a group of ranks.
std::vector<lmx::ParameterSpec> parameters();

// A rank's gradient of a parameter, a function of rank and step. In step 1 the last of several ranks has none.
struct Own {
  std::vector<int32_t> indices;  // sparse: with repetitions
  std::vector<float> values;     // empty: no gradient
};
Own own_of(int rank, int ranks, int step, const lmx::ParameterSpec& p);

// By parameter and rank the rows that SyncStrategy::selected_rows() names; parameters of which all rows travel are
// absent.
using SelectedRows = std::map<std::string, std::vector<std::set<int32_t>>>;

// The sum over ranks, as large as the parameter, of the rows that each has selected.
std::vector<double> sum_of(int ranks, int step, const lmx::ParameterSpec& p, const SelectedRows& selected);
// What expected_bytes() is asked for a unit.
lmx::Traffic traffic_of(int rank, int ranks, int step, const std::vector<lmx::ParameterSpec>& unit,
                        const SelectedRows& selected);

}  // namespace lmx_cli::check
