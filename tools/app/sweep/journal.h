// journal.jsonl: all events of a sweep's points, one per line. Each is on disk before the next event happens. Also the
// outcomes that it records, and the points that halving stops.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/jobs/launcher.h"
#include "app/records/records.h"
#include "app/sweep/plan.h"

namespace lmx::app::sweep {

// How a point ended, and the result of its run.

// done, diverged, out_of_memory, failed; preempted: ended from outside, and can continue; stopped: by halving; paused:
// at a rung of halving.
enum class Outcome { none, done, diverged, out_of_memory, failed, preempted, stopped, paused };
const char* name_of(Outcome outcome);

struct Judgement {
  Outcome outcome = Outcome::none;
  std::string reason;  // the problem, in one line
};

// Determines the outcome from the exit code, the run's status.json and the last error in its log.
Judgement judge(const jobs::Ended& ended, const std::string& run, const std::string& log);

// Returns the keys that a record of a split can have, without those that name a part of the recipe
// (`rows/softmax.weight`, `comm/tables/...`, `accuracy/top_5`) and without those of ranks.
std::vector<std::string> record_keys(const std::string& split);

// Returns the current metric of a run; nothing if it has none yet, or none that is finite.
std::optional<double> read_metric(const Metric& metric, const std::string& run, const std::string& log);

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

// UserError: the value is no whole number. Converting 1e300 with nlohmann's get<int64_t>() is undefined behaviour.
int64_t integer_at(const nlohmann::ordered_json& json, const char* key);

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

class Journal {
 public:
  // Reads an existing journal. UserError: it is damaged. RunError: it cannot be written.
  Journal(const Plan& plan, const std::string& directory);
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
  void write(const nlohmann::ordered_json& event);

  const Plan& plan_;
  std::string path_;
  Standing standing_;
};

// Successive halving (Jamieson and Talwalkar 2016): all configurations train for some steps, the better ones longer.

// Returns the step at which the next rung ends: min eta^k. Returns 0 if the remaining points run to their end: at most
// one configuration is left, min eta^k is not below their last step, or no halving was requested.
int64_t rung_step(const Plan& plan, const Journal& journal);

// Returns why the requested halving stops no point; "" if it may stop some, or if no halving was requested.
std::string why_no_rung(const Plan& plan);

// Returns the paused points that do not continue: all points except those of the best 1/eta (at least one) of the
// configurations with paused points. The value of a configuration is the mean over its seeds. A configuration with a
// point that failed or has no value is last.
std::vector<size_t> losers(const Plan& plan, const std::vector<State>& states);

}  // namespace lmx::app::sweep
