// journal.jsonl: everything that happens to a sweep's points, a line each, on disk before the next thing happens. What
// it says is true; journal.sqlite beside it says the same for those who want to ask.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/sweep/outcome.h"

namespace lmx_cli::sweeps {

// Where a point stands.
struct State {
  Outcome outcome = Outcome::none;  // none: it has not ended; paused: it waits at a rung
  int64_t attempts = 0;             // starts that came to an end of their own
  bool begun = false;               // it was started, by now or once
  int64_t step = 0;
  std::optional<double> value;  // the metric's
  double seconds = 0;           // of all starts that ended
  std::string reason;
  bool ended() const { return outcome != Outcome::none && outcome != Outcome::paused; }
};

// An array job of a scheduler. `name` is on disk before the scheduler hears of it, `job` after it has taken it.
struct Batch {
  int64_t number = 0;
  std::string name, job;
  struct Task {
    std::string point;
    int64_t until = 0;
  };
  std::vector<Task> tasks;
};

// What the lines of a journal come to.
struct Standing {
  std::vector<State> states;  // of each point
  std::vector<Batch> batches;
  int64_t rungs = 0;  // of halving that are over
  // UserError that begins with `where`: a line that is none of a journal, or of other points.
  void apply(const Plan& plan, const std::string& line, const std::string& where);
};

// Of the sweep in `directory`, as far as whole lines say; writes nothing.
Standing read_standing(const Plan& plan, const std::string& directory);

class Database;

class Journal {
 public:
  // Reads what is there. UserError: damaged. RunError: cannot be written.
  Journal(const Plan& plan, const std::string& directory);
  ~Journal();
  const State& state(size_t point) const { return standing_.states[point]; }
  const std::vector<State>& states() const { return standing_.states; }
  const std::vector<Batch>& batches() const { return standing_.batches; }
  int64_t rungs() const { return standing_.rungs; }

  void started(size_t point, int64_t until);
  void ended(size_t point, const Judgement& how, int64_t step, std::optional<double> value, double seconds);
  // Another value of a point that has ended.
  void measured(size_t point, std::optional<double> value);
  // A rung of halving is over: these points do not go on.
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
