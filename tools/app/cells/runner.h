// Runs the cells of an experiment, each in a separate process, and records which are done (finished.h has the files).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/cells/cells.h"
#include "app/cells/finished.h"

namespace lmx_cli::experiments {

struct RunnerOptions {
  std::string out;
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

class Runner {
 public:
  // UserError: another process works in `out`, or `out` contains a cell that was run with another recipe. RunError: a
  // folder that cannot be written.
  Runner(const Experiment& experiment, const std::vector<Cell>& cells, RunnerOptions options);
  ~Runner();
  // Runs each cell of `wanted` (ids) that is not done yet. A cell that has begun continues from its last checkpoint.
  Ending run(const std::vector<std::string>& wanted);
  const Finished& finished() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx_cli::experiments
