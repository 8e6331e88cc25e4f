// Shows the progress of a sweep: on a terminal a table that is redrawn, otherwise a line for each point that has ended.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "app/points/journal.h"
#include "app/points/store.h"

namespace lmx_cli::sweeps {

class Live {
 public:
  Live(const Plan& plan, const Folder& folder, const Journal& journal);
  void started(size_t point);
  void ended(size_t point);        // with the state that the journal contains
  void again(size_t point);        // the point has ended, but will be started again
  void interrupted(size_t point);  // because the sweep ends
  void show();                     // at most twice a second
  void done();

 private:
  using Clock = std::chrono::steady_clock;
  struct Row {
    std::vector<std::string> cells;
  };
  std::string summary() const;
  std::string eta() const;
  std::vector<std::string> lines() const;
  void erase();

  const Plan& plan_;
  const Folder folder_;
  const Journal& journal_;
  std::map<size_t, Clock::time_point> running_;
  std::vector<size_t> last_;  // points that have ended, the newest last
  size_t ended_before_ = 0;
  Clock::time_point start_, shown_;
  size_t drawn_ = 0;  // lines of the table on the terminal
};

}  // namespace lmx_cli::sweeps
