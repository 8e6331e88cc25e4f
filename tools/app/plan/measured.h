// The records of a run as input of a plan.
#pragma once

#include <map>
#include <string>

#include "lmx/config.h"

namespace lmx::plan {

struct Measured {
  Node recipe;  // the run's config.yaml, with the batch that batch.fit has chosen
  int ranks = 1;
  double compute_s = 0;                // of a step, without the exchange of gradients that nothing hides; the median
  double spread = 0;                   // of the times of sub-batches (Spread::relative); 0: the run has none
  std::map<std::string, double> rows;  // by table: rows of its gradient in a step, all ranks together; the mean
};
// UserError: no run, a run without a record, one whose ranks share the cores of one process.
Measured read_measured(const std::string& run);

}  // namespace lmx::plan
