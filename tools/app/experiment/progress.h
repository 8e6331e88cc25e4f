// Which cell an experiment is at, and when it will end.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "app/experiment/cells.h"

namespace lmx_cli::experiments {

// "cell 3/15 all-1: step 400/2000, ETA 2h05m" on a terminal; a line for each cell that has ended everywhere.
class Progress {
 public:
  // `folder`: where each cell's run lies below its id.
  Progress(std::vector<const Cell*> cells, std::string folder);
  void started(const Cell& cell);
  void ended(const Cell& cell, double seconds, const std::string& failure);
  void diverged(const Cell& cell, double seconds, const std::string& why);
  void show();  // at most twice a second
  void done() const;
  // Of the work that there was at the start, 0 to 1, where cells' updates count by their batches and epochs by their
  // text; NaN while none has recorded how long an epoch is, 1 where nothing is left.
  double done_part() const;

 private:
  void say(const Cell& cell, double seconds, const char* how, const std::string& why);
  using Clock = std::chrono::steady_clock;
  struct Work {
    double batch = 1;              // sequences or sub-batches of an update
    double steps = 0, epochs = 0;  // how long it trains: in updates, or, where they are 0, in epochs
    double text = 1;               // the part of the corpus that an epoch reads
    double at_start = 0;           // the part that was done before
    bool running = false, over = false;
  };
  double step_of(const Cell& cell) const;  // the last record's
  double part_of(const Cell& cell) const;  // that is done
  double epoch_size() const;               // of the whole corpus, as the first cell tells that has recorded one; or 0
  std::string eta() const;

  std::vector<const Cell*> cells_;
  std::string folder_;
  std::map<const Cell*, Work> work_;
  Clock::time_point start_, shown_;
  size_t ended_ = 0;
  mutable double epoch_size_ = 0;
};

}  // namespace lmx_cli::experiments
