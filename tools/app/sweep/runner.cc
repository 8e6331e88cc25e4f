#include "app/sweep/runner.h"

#include <set>

#include "app/sweep/table.h"
#include "lmx/error.h"

namespace lmx_cli::sweeps {
namespace {

using lmx::str;

jobs::Progress::Result result_of(const State& s) {
  const std::string value = s.value ? number_text(*s.value) : "";
  return {name_of(s.outcome), s.step, value, s.seconds, s.reason, s.ended()};
}

jobs::Progress progress_of(const Plan& plan, const Folder& folder, const Journal& journal) {
  std::vector<jobs::Progress::Job> all;
  for (size_t p = 0; p < plan.points.size(); ++p)
    all.push_back({plan.points[p].id, folder.run(plan.points[p]), plan.points[p].length, result_of(journal.state(p))});
  const auto value = [&plan, folder](size_t p) {
    const Point& point = plan.points[p];
    const std::optional<double> number = read_metric(plan.request.metric, folder.run(point), folder.log(point));
    return number ? number_text(*number) : "";
  };
  return {std::move(all), {"point", plan.request.metric.text(), value, plan.request.halving.eta == 0}};
}

class PointRunner final : public jobs::Runner {
 public:
  PointRunner(const Plan& plan, const Folder& folder, Journal& journal, jobs::Launcher& launcher,
              jobs::Progress& progress, const RunOptions& options)
      : Runner(launcher, progress), plan_(plan), folder_(folder), journal_(journal), options_(options) {}

  Result run() {
    for (const std::string& id : launcher_.running()) {
      recovered_.insert(plan_.index_of(id));
      progress_.started(id);
    }
    adopt();
    while (true) {
      const int64_t until = until_ = rung_step(plan_, journal_);
      queue();
      drive();
      result_.signal = jobs::SignalNote::received();
      if (interrupted() || until == 0) return result_;
      check_rung();
      const std::vector<size_t> stopped = losers(plan_, journal_.states());
      journal_.rung(until, stopped);
      for (const size_t p : stopped) progress_.decided(plan_.points[p].id, result_of(state(p)));
    }
  }

 private:
  const State& state(size_t point) const { return journal_.state(point); }

  // Records points that ended after this program's last note of them.
  void adopt() {
    for (size_t p = 0; p < plan_.points.size(); ++p) {
      const Point& point = plan_.points[p];
      if (recovered_.contains(p) || !state(p).begun || state(p).outcome != Outcome::none) continue;
      const RunStatus status = read_status(folder_.run(point));
      const bool done = (status.state == "done" && !point.translates) || status.state == "paused";
      if (!done && status.state != "failed") continue;
      note(p, {point.id, done ? 0 : 1});
      progress_.decided(point.id, result_of(state(p)));
    }
    for (size_t p = 0; p < plan_.points.size(); ++p)
      if (state(p).outcome == Outcome::preempted) preempted_before_.insert(p);
  }

  // Throws if no point has a value: then halving would stop arbitrary points.
  void check_rung() const {
    int64_t waiting = 0;
    for (const State& s : journal_.states()) {
      waiting += s.outcome == Outcome::paused;
      if (s.outcome == Outcome::paused && s.value) return;
    }
    if (waiting > 0)
      throw lmx::UserError(str("[sweep] after ", until_, " steps no point has a finite value of '",
                               plan_.request.metric.text(), "', so that halving cannot choose which ",
                               waiting == 1 ? "continues" : "continue",
                               "; nothing is stopped. Start a new sweep with another --metric or --halving"));
  }

  bool may_retry(const State& s) const {
    const bool could =
        s.outcome == Outcome::failed || s.outcome == Outcome::out_of_memory || s.outcome == Outcome::preempted;
    return could && s.attempts <= options_.retry;
  }

  bool wants(size_t point) const {
    const State& s = state(point);
    if (s.outcome == Outcome::none) return true;
    if (s.outcome == Outcome::paused) return until_ == 0 || s.step < until_;
    return may_retry(s) || preempted_before_.contains(point);
  }

  void queue() {
    for (size_t p = 0; p < plan_.points.size(); ++p)
      if (!recovered_.contains(p) && wants(p)) waiting_.push_back(job_of(p));
    recovered_.clear();  // they end in this rung
  }

  jobs::Job job_of(size_t p) const {
    const Point& point = plan_.points[p];
    const std::string run = folder_.run(point);
    jobs::Job job{point.id,     jobs::run_command(folder_.recipe(point), run, plan_.request.plugin_dirs),
                  run,          folder_.log(point),
                  point.demand, until_};
    if (until_ > 0) job.words.insert(job.words.end(), {"--until", std::to_string(until_)});
    return job;
  }

  void started(const jobs::Job& job) override {
    const size_t point = plan_.index_of(job.id);
    journal_.started(point, job.until);
    preempted_before_.erase(point);
  }

  // A point that the sweep itself interrupted has no outcome; it continues when the sweep is resumed.
  void ended(const jobs::Ended& job) override {
    if (interrupted() && job.code != 0) return progress_.interrupted(job.id);
    const size_t point = plan_.index_of(job.id);
    const Outcome outcome = note(point, job);
    progress_.ended(job.id, result_of(state(point)));
    if (wants(point)) {
      waiting_.push_back(job_of(point));
    } else if (options_.fail_fast && outcome == Outcome::failed) {
      result_.failed = str(job.id, ": ", state(point).reason);
      stop();
    }
  }

  Outcome note(size_t point, const jobs::Ended& job) {
    const std::string run = folder_.run(plan_.points[point]), log = folder_.log(plan_.points[point]);
    const Judgement how = judge(job, run, log);
    const RunStatus status = read_status(run);
    const int64_t step = status.state.empty() ? static_cast<int64_t>(jobs::last_number(run, "step")) : status.step;
    journal_.ended(point, how, step, read_metric(plan_.request.metric, run, log), job.seconds);
    return how.outcome;
  }

  const Plan& plan_;
  const Folder folder_;
  Journal& journal_;
  const RunOptions options_;
  int64_t until_ = 0;                  // of the present rung; 0: the end of the training
  std::set<size_t> recovered_;         // points that an earlier process has started, and that still run
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

Result run_points(const Plan& plan, const Folder& folder, Journal& journal, jobs::Launcher& launcher,
                  const RunOptions& options) {
  jobs::Progress progress = progress_of(plan, folder, journal);
  return PointRunner(plan, folder, journal, launcher, progress, options).run();
}

}  // namespace lmx_cli::sweeps
