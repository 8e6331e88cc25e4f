// Reports which cell an experiment is at, and when it will end.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "app/cells/cells.h"

namespace lmx_cli::experiments {

// On a terminal, a line like "cell 3/15 all-1: step 400/2000, ETA 2h05m"; everywhere, a line for each cell that has
// ended.
class Progress {
 public:
  // `folder`: prefix of each cell's run folder, before its id.
  Progress(std::vector<const Cell*> cells, std::string folder);
  void started(const Cell& cell);
  void ended(const Cell& cell, double seconds, const std::string& failure);
  void diverged(const Cell& cell, double seconds, const std::string& why);
  void show();  // at most twice a second
  void done() const;
  // Returns the completed part, 0 to 1, of the work that was left at the start. Updates are weighted by their batch
  // size, epochs by the text that they read. NaN if the length of an epoch is needed, but no cell has recorded it yet;
  // 1 if no work is left.
  double done_part() const;

 private:
  void say(const Cell& cell, double seconds, const char* how, const std::string& why);
  using Clock = std::chrono::steady_clock;
  struct Work {
    double batch = 1;              // sequences or sub-batches of an update
    double steps = 0, epochs = 0;  // length of the training: in updates or, if this is 0, in epochs
    double text = 1;               // the part of the corpus that an epoch reads
    double at_start = 0;           // the part that was done before
    bool running = false, over = false;
  };
  double step_of(const Cell& cell) const;  // of the last record
  double part_of(const Cell& cell) const;  // the part that is done
  double epoch_size() const;               // of the whole corpus, from the first cell that has recorded it; or 0
  std::string eta() const;

  std::vector<const Cell*> cells_;
  std::string folder_;
  std::map<const Cell*, Work> work_;
  Clock::time_point start_, shown_;
  size_t ended_ = 0;
  mutable double epoch_size_ = 0;
};

}  // namespace lmx_cli::experiments
