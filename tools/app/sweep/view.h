// The data of a sweep for `lmx report`.
#pragma once

#include <string>
#include <vector>

#include "app/report/page.h"
#include "app/sweep/table.h"

namespace lmx_cli::sweeps {

struct SweepReport {
  reports::SweepView view;
  std::vector<reports::Report> runs;  // runs of the points that have records
  Summary summary;                    // of its configurations
};

// Reads the folder of a sweep, finished or not. UserError: no sweep there, or a damaged one.
SweepReport read_sweep(const std::string& directory);

}  // namespace lmx_cli::sweeps
