// Starts the cells of an experiment: as processes on this machine, or as jobs of Slurm.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/cells/cells.h"
#include "app/jobs/pool.h"

namespace lmx_cli::experiments {

// A cell to start.
struct CellJob {
  const Cell& cell;
  std::vector<std::string> words;  // its command
  std::string log;                 // the output of the command is appended to this file
};

class CellLauncher {
 public:
  virtual ~CellLauncher();
  // Starts a cell. Returns false if there is no room for it at the moment.
  virtual bool start(const CellJob& job) = 0;
  virtual std::optional<jobs::Ended> poll() = 0;  // a cell that has ended
  // To be called when the result of a cell that has ended is recorded, or its failure is known.
  virtual void recorded(const std::string&) {}
  virtual size_t running() const = 0;
  virtual int signal() const = 0;     // the SIGINT or SIGTERM that this process received; 0: none
  virtual bool outlives() const = 0;  // true: cells continue when this process ends
};

// Runs at most `jobs` cells (0: one) of `cells` at a time; they divide the cores.
std::unique_ptr<CellLauncher> local_cells(int64_t jobs, size_t cells);

struct SlurmOptions {
  std::string folder;                  // of scripts and exit codes
  int64_t jobs = 0;                    // cells in the queue at a time; 0: all
  std::vector<std::string> scheduler;  // options of sbatch, which become lines of the script
};
// Submits a job for each cell. A job that is already in the queue, or that has ended since an earlier process submitted
// it, is not submitted again.
std::unique_ptr<CellLauncher> slurm_cells(const SlurmOptions& options);

}  // namespace lmx_cli::experiments
