#include "app/sweep/runner.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <set>

#include "app/jobs/pool.h"
#include "lmx/error.h"

namespace lmx_cli::sweeps {
namespace {

using lmx::str;

class Runner {
 public:
  Runner(const Plan& plan, const Folder& folder, Journal& journal, Launcher& launcher, const RunOptions& options)
      : plan_(plan),
        folder_(folder),
        journal_(journal),
        launcher_(launcher),
        options_(options),
        live_(plan, folder, journal) {}

  Result run() {
    for (const size_t point : launcher_.recover(journal_.batches())) running_.insert(point);
    adopt();
    while (true) {
      const int64_t until = rung_step(plan_, journal_);
      queue(until);
      drive(until);
      if (result_.signal || !result_.failed.empty()) break;
      if (until == 0) break;
      check_rung(until);
      journal_.rung(until, losers(plan_, journal_.states()));
    }
    live_.done();
    return result_;
  }

 private:
  const State& state(size_t point) const { return journal_.state(point); }

  // Records points that ended after this program's last note of them.
  void adopt() {
    for (size_t p = 0; p < plan_.points.size(); ++p) {
      if (running_.contains(p) || !state(p).begun || state(p).outcome != Outcome::none) continue;
      const RunStatus status = read_status(folder_.run(plan_.points[p]));
      if ((status.state == "done" && !plan_.points[p].translates) || status.state == "paused")
        note({p, {0, false, ""}, 0});
      if (status.state == "failed") note({p, {1, false, ""}, 0});
    }
    for (size_t p = 0; p < plan_.points.size(); ++p)
      if (state(p).outcome == Outcome::preempted) preempted_before_.insert(p);
  }

  // Throws if no point has a value: then halving would stop arbitrary points.
  void check_rung(int64_t until) const {
    int64_t waiting = 0;
    for (const State& s : journal_.states()) {
      waiting += s.outcome == Outcome::paused;
      if (s.outcome == Outcome::paused && s.value) return;
    }
    if (waiting > 0)
      throw lmx::UserError(str("[sweep] after ", until, " steps no point has a finite value of '",
                               plan_.request.metric.text(), "', so that halving cannot choose which ",
                               waiting == 1 ? "continues" : "continue",
                               "; nothing is stopped. Start a new sweep with another --metric or --halving"));
  }

  bool may_retry(const State& s) const {
    const bool could =
        s.outcome == Outcome::failed || s.outcome == Outcome::out_of_memory || s.outcome == Outcome::preempted;
    return could && s.attempts <= options_.retry;
  }

  bool wants(size_t point, int64_t until) const {
    const State& s = state(point);
    if (s.outcome == Outcome::none) return true;
    if (s.outcome == Outcome::paused) return until == 0 || s.step < until;
    return may_retry(s) || preempted_before_.contains(point);
  }

  void queue(int64_t until) {
    waiting_.clear();
    for (size_t p = 0; p < plan_.points.size(); ++p)
      if (!running_.contains(p) && wants(p, until)) waiting_.push_back({p, until});
  }

  void drive(int64_t until) {
    while (!waiting_.empty() || !running_.empty()) {
      if (!launcher_.signal() && result_.failed.empty()) start();
      const std::vector<Finished> finished = launcher_.poll();
      result_.signal = launcher_.signal();
      for (const Finished& f : finished) {
        running_.erase(f.point);
        take(f, until);
      }
      if (result_.signal && (running_.empty() || launcher_.outlives())) return;
      if (!result_.failed.empty() && running_.empty()) return;
      if (finished.empty()) jobs::Pool::wait();
      live_.show();
    }
  }

  void start() {
    const size_t count = waiting_.empty() ? 0 : launcher_.launch({waiting_.begin(), waiting_.end()});
    for (size_t i = 0; i < count; ++i) {
      const Work work = waiting_.front();
      waiting_.pop_front();
      journal_.started(work.point, work.until);
      preempted_before_.erase(work.point);
      running_.insert(work.point);
      live_.started(work.point);
    }
  }

  // A point that the sweep itself interrupted has no outcome; it continues when the sweep is resumed.
  void take(const Finished& f, int64_t until) {
    const bool interrupted = result_.signal || !result_.failed.empty();
    if (interrupted && f.ending.code != 0) return live_.interrupted(f.point);
    const Outcome outcome = note(f);
    live_.ended(f.point);
    if (wants(f.point, until)) {
      waiting_.push_back({f.point, until});
      live_.again(f.point);
    } else if (options_.fail_fast && outcome == Outcome::failed) {
      result_.failed = str(plan_.points[f.point].id, ": ", state(f.point).reason);
      launcher_.stop();
    }
  }

  Outcome note(const Finished& f) {
    const Point& point = plan_.points[f.point];
    const std::string run = folder_.run(point), log = folder_.log(point);
    const Judgement how = judge(f.ending, run, log);
    const RunStatus status = read_status(run);
    const int64_t step = status.state.empty() ? static_cast<int64_t>(jobs::last_number(run, "step")) : status.step;
    journal_.ended(f.point, how, step, read_metric(plan_.request.metric, run, log), f.seconds);
    return how.outcome;
  }

  const Plan& plan_;
  const Folder folder_;
  Journal& journal_;
  Launcher& launcher_;
  const RunOptions options_;
  Live live_;
  std::deque<Work> waiting_;
  std::set<size_t> running_;
  std::set<size_t> preempted_before_;  // preempted when an earlier process of this sweep ended
  Result result_;
};

}  // namespace

void measure_again(const Plan& plan, const Folder& folder, Journal& journal) {
  for (size_t p = 0; p < plan.points.size(); ++p) {
    if (!journal.state(p).ended()) continue;
    const std::optional<double> value =
        read_metric(plan.request.metric, folder.run(plan.points[p]), folder.log(plan.points[p]));
    if (value != journal.state(p).value) journal.measured(p, value);
  }
}

Result run_points(const Plan& plan, const Folder& folder, Journal& journal, Launcher& launcher,
                  const RunOptions& options) {
  return Runner(plan, folder, journal, launcher, options).run();
}

}  // namespace lmx_cli::sweeps
