// Meetings of ranks that make their steps separately: they add up their sums for a record, and validate and save.
#pragma once

#include <functional>
#include <string>

#include "train/loop/run_log.h"

namespace lmx {

class Meetings {
 public:
  // `validate_and_save`: does what is due after the step RunState::at.step, which all ranks have completed.
  Meetings(RunState& run, RunLog& log, std::function<void()> validate_and_save);
  int64_t next() const { return next_; }  // the step at which the ranks meet next
  // Collective. Sets at.step to the number of steps that all ranks have completed (Worker::step) and, if that is next()
  // and is logged, at.window to the sum over ranks. Finds signals. Returns the lap of all ranks. To be called
  // after end_failed().
  Lap gather();
  // Collective: writes the record of the step next() and does what else is due after it.
  void hold(const Lap& lap);

 private:
  int64_t after(int64_t step) const;

  RunState& run_;
  Session& s_;
  RunLog& log_;
  std::function<void()> validate_and_save_;
  int64_t next_ = 0;
};

// Collective. Throws Diverged on all ranks if one of them has a `failure`.
void end_failed(Communicator& comm, const std::string& failure);

}  // namespace lmx
