// Shows the progress of a sweep or an experiment: on a terminal a table that is redrawn, otherwise a line for each job
// that has ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lmx/config.h"

namespace lmx::app::jobs {

// The training of a recipe.
struct Length {
  double batch = 1;              // sequences or sub-batches of an update
  double steps = 0, epochs = 0;  // in updates or, if this is 0, in epochs
  double text = 1;               // the part of the corpus that an epoch reads
};
// Reads the length of a recipe with every default.
Length length_of(const Node& recipe);

class Progress {
 public:
  // The state that a job has reached.
  struct Result {
    std::string outcome = {};  // "": none
    int64_t step = 0;
    std::string value = {};
    double seconds = 0;
    std::string reason = {};
    bool ended = false;  // false: it has not begun, runs, or pauses
  };
  struct Job {
    std::string id, run;  // run: the folder of its run
    Length length = {};
    Result before = {};  // in earlier processes
  };
  struct View {
    std::string noun;                                        // what a job is: "point", "cell"
    std::string metric = {};                                 // the heading of the values; "": there are none
    std::function<std::string(size_t job)> value = nullptr;  // the present value of a job that runs
    bool whole = true;  // jobs train to their end, so that the remaining time can be estimated
  };

  Progress(std::vector<Job> jobs, View view);
  void started(const std::string& id);
  void ended(const std::string& id, const Result& result);
  void decided(const std::string& id, const Result& result);  // about a job that does not run
  void interrupted(const std::string& id);                    // the job runs no longer, because this process ends
  void show();                                                // at most twice a second
  void hide();                                                // until the next show()
  // Returns the completed part, 0 to 1, of the work that was left at the start. Updates are weighted by their batch
  // size, epochs by the text that they read. NaN if the length of an epoch is needed, but no job has recorded it yet;
  // 1 if no work is left.
  double done_part() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct State {
    Result result;
    double at_start = 0;  // the part that was done when this process began
    bool running = false;
    Clock::time_point since = {};  // its start
  };
  double part_of(size_t job) const;  // the part of a job that is done
  double epoch_size() const;         // of the whole corpus, from the first job that has recorded it; or 0
  size_t count_ended() const;
  std::string eta() const;
  std::string summary() const;
  std::vector<std::string> lines() const;

  std::vector<Job> jobs_;
  View view_;
  std::map<std::string, size_t> index_;  // by id
  std::vector<State> states_;
  std::vector<size_t> last_;  // jobs that have ended, the newest last
  Clock::time_point start_, shown_ = {};
  size_t drawn_ = 0;  // lines of the table on the terminal
  mutable double epoch_size_ = 0;
};

// Returns the last `name` ("step", "epoch") that the run in `folder` has recorded; 0 if there is none.
double last_number(const std::string& folder, const std::string& name);

}  // namespace lmx::app::jobs
