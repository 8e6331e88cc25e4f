// The training loop of ranks that are workers of a parameter server. They pull and push asynchronously, in the order of
// simulated time, of real time (between processes), or of a recorded schedule. They meet when the slowest worker has
// completed a step that must be recorded, validated or saved.
//
// A meeting does not affect the results: a worker that is ahead meets the others while it waits for its next event,
// perhaps with a gradient that is computed but not pushed, and then continues. So neither the logging interval nor an
// interruption changes the computation.
#pragma once

#include <functional>
#include <string>

#include "train/loop/meetings.h"
#include "train/loop/update.h"

namespace lmx {

class WorkerLoop {
 public:
  // `validate_and_save`: does what is due after the step RunState::at.step, which all workers have completed.
  WorkerLoop(RunState& run, RunLog& log, StepRunner& steps, Updater& updater, std::function<void()> validate_and_save);
  // Trains until all workers have completed the last step, a pause or a signal. Throws Diverged.
  void run();
  void write_recorded() const;  // the order of events, if the recipe has it recorded

 private:
  void work();
  void start_link();
  void announce(double time);
  bool take_turn(server::Event event, double time);
  bool my_turn(server::Event event);
  void push(const StepLoss& loss, const ClipResult& clipped);
  void note_event(bool push);
  void count_served();
  bool meeting_due() const;
  void meet();

  RunState& run_;
  Session& s_;
  RunLog& log_;
  StepRunner& steps_;
  Updater& updater_;
  Meetings meetings_;
  const ServerConfig& config_;
  std::string failure_;  // the error because of which this worker cannot continue
};

}  // namespace lmx
