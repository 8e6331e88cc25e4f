// Runs the cells of an experiment, each in a separate process, and records which are done (journal.h has the files).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "app/experiment/journal.h"

namespace lmx::app::experiment {

struct RunnerOptions {
  int64_t jobs = 0;  // cells at a time; 0: one, or with `slurm` all
  bool keep_checkpoints = false;
  std::vector<std::string> plugin_directories;
  bool slurm = false;                  // cells are jobs of Slurm, not processes of this machine
  std::vector<std::string> scheduler;  // options of sbatch
};

struct Ending {
  std::map<std::string, std::string> failed;  // cell -> why
  int signal = 0;                             // the signal that ended it early; 0: none
};

// Runs each cell of `wanted` (ids) that is not done yet, and adds it to `finished`. A cell that has begun continues
// from its last checkpoint. RunError: a folder that cannot be written.
Ending run_cells(const Experiment& experiment, const std::vector<Cell>& cells, Finished& finished,
                 const std::vector<std::string>& wanted, const RunnerOptions& options);

}  // namespace lmx::app::experiment
