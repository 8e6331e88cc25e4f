// Cells as processes on this machine.
#include <algorithm>

#include "app/cells/launcher.h"
#include "app/jobs/cores.h"

namespace lmx_cli::experiments {
namespace {

class LocalCells : public CellLauncher {
 public:
  LocalCells(int64_t jobs, size_t cells) : jobs_(std::max<int64_t>(1, jobs)), cores_(jobs_, cells) {}

  bool start(const CellJob& job) override {
    if (pool_.size() >= static_cast<size_t>(jobs_) || !cores_.free_for(job.cell.demand)) return false;
    pool_.start({job.cell.id, job.words, job.log, cores_.take(job.cell.demand)});
    return true;
  }
  std::optional<jobs::Ended> poll() override {
    const std::optional<jobs::Ended> ended = pool_.poll();
    if (ended) cores_.give_back(ended->cores);
    return ended;
  }
  size_t running() const override { return pool_.size(); }
  int signal() const override { return pool_.signal(); }
  bool outlives() const override { return false; }

 private:
  const int64_t jobs_;
  jobs::Cores cores_;
  jobs::Pool pool_;
};

}  // namespace

CellLauncher::~CellLauncher() = default;

std::unique_ptr<CellLauncher> local_cells(int64_t jobs, size_t cells) {
  return std::make_unique<LocalCells>(jobs, cells);
}

}  // namespace lmx_cli::experiments
