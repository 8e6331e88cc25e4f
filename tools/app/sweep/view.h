// A sweep as `lmx report` shows it.
#pragma once

#include <string>
#include <vector>

#include "app/report/page.h"

namespace lmx_cli::sweeps {

struct SweepReport {
  reports::SweepView view;
  std::vector<reports::Report> runs;  // of the points that have left records
  std::string table;                  // as the sweep itself prints it at its end
};

// Of the folder of a sweep, finished or not. UserError: no sweep there, or a damaged one.
SweepReport read_sweep(const std::string& directory);

}  // namespace lmx_cli::sweeps
