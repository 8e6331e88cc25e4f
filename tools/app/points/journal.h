// journal.jsonl: all events of a sweep's points, one per line. Each is on disk before the next event happens. The
// journal is authoritative; journal.sqlite contains the same data for queries.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/points/outcome.h"

namespace lmx_cli::sweeps {

// The state of a point.
struct State {
  Outcome outcome = Outcome::none;  // none: the point has not ended; paused: it waits at a rung
  int64_t attempts = 0;             // starts that have ended, except at a rung
  bool begun = false;               // the point has been started at least once
  int64_t step = 0;
  std::optional<double> value;  // the metric's
  double seconds = 0;           // total of all starts that ended
  std::string reason;
  bool ended() const { return outcome != Outcome::none && outcome != Outcome::paused; }
};

// An array job of a scheduler. `name` is on disk before the job is submitted, `job` after the scheduler has accepted
// it.
struct Batch {
  int64_t number = 0;
  std::string name, job;
  struct Task {
    std::string point;
    int64_t until = 0;
  };
  std::vector<Task> tasks;
};

// The state of a sweep after the lines of its journal.
struct Standing {
  std::vector<State> states;  // of each point
  std::vector<Batch> batches;
  int64_t rungs = 0;  // finished rungs of halving
  // Applies one line. UserError, starting with `where`: a line that is not from a journal, or that is about other
  // points.
  void apply(const Plan& plan, const std::string& line, const std::string& where);
};

// Reads the state of the sweep in `directory` from the complete lines of its journal; writes nothing.
Standing read_standing(const Plan& plan, const std::string& directory);

class Database;

class Journal {
 public:
  // Reads an existing journal. UserError: it is damaged. RunError: it cannot be written.
  Journal(const Plan& plan, const std::string& directory);
  ~Journal();
  const State& state(size_t point) const { return standing_.states[point]; }
  const std::vector<State>& states() const { return standing_.states; }
  const std::vector<Batch>& batches() const { return standing_.batches; }
  int64_t rungs() const { return standing_.rungs; }

  void started(size_t point, int64_t until);
  void ended(size_t point, const Judgement& how, int64_t step, std::optional<double> value, double seconds);
  // Records a different value for a point that has ended.
  void measured(size_t point, std::optional<double> value);
  // Records the end of a rung of halving: the points `stopped` do not continue.
  void rung(int64_t step, const std::vector<size_t>& stopped);
  void submitting(const Batch& batch);
  void submitted(int64_t batch, const std::string& job);

 private:
  struct Line;
  void write(const Line& line);

  const Plan& plan_;
  std::string path_;
  Standing standing_;
  std::unique_ptr<Database> database_;
};

}  // namespace lmx_cli::sweeps
