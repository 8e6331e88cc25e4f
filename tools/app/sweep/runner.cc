#include "app/sweep/runner.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "app/jobs/slurm.h"
#include "app/print/words.h"
#include "app/sweep/table.h"
#include "base/output_file.h"
#include "lmx/error.h"

namespace lmx::app::sweep {
namespace {

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
      if (interrupted() || until == 0 || waits_for_preempted()) return result_;
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

  // A rung compares all points. One that was ended from outside reaches it when the sweep is resumed.
  bool waits_for_preempted() const {
    const std::vector<State>& all = journal_.states();
    return std::any_of(all.begin(), all.end(), [](const State& s) { return s.outcome == Outcome::preempted; });
  }

  // Throws if no point has a value: then halving would stop arbitrary points.
  void check_rung() const {
    int64_t waiting = 0;
    for (const State& s : journal_.states()) {
      waiting += s.outcome == Outcome::paused;
      if (s.outcome == Outcome::paused && s.value) return;
    }
    if (waiting > 0)
      throw UserError(str("[sweep] after ", until_, " steps no point has a finite value of '",
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

// Points as tasks of Slurm's array jobs. This program only submits and watches them; they continue when it ends.
//
//   slurm/K.tasks      one command per line, starting with that of array task 0
//   slurm/K.sh         the batch script
//   slurm/K.N.exit     the exit code of task N, as soon as it has one, until the journal has it
//
// The array's name is in the journal before it is submitted, so an array that was submitted just before this program
// was killed is found again.

namespace {

namespace slurm = jobs::slurm;

class ArrayLauncher final : public jobs::SlurmLauncher {
 public:
  ArrayLauncher(const Plan& plan, const Folder& folder, const LaunchOptions& options, Journal& journal)
      : SlurmLauncher({"point", folder.path + "/slurm", options.jobs, options.scheduler}),
        plan_(plan),
        folder_(folder),
        journal_(journal) {
    for (const Batch& batch : journal.batches()) recover(batch);
  }

  size_t start(const std::deque<jobs::Job>& waiting) override {
    std::map<std::pair<int64_t, int64_t>, std::vector<const jobs::Job*>> kinds;  // by processes and threads
    for (const jobs::Job& job : waiting) kinds[{job.demand.processes, job.demand.threads}].push_back(&job);
    for (const auto& [kind, tasks] : kinds) submit(tasks);
    return waiting.size();
  }

 private:
  std::string base(int64_t batch) const { return str(options_.folder, "/", batch); }
  std::string exit_file(int64_t batch, size_t task) const { return str(base(batch), ".", task, ".exit"); }

  // Watches the tasks of a batch that have no outcome yet.
  void recover(const Batch& batch) {
    batches_ = std::max(batches_, batch.number);
    std::map<size_t, std::string> tasks;
    bool any_code = false;
    for (size_t t = 0; t < batch.tasks.size(); ++t) {
      const Batch::Task& task = batch.tasks[t];
      const size_t point = plan_.index_of(task.point);
      if (point == plan_.points.size())
        throw UserError(str("[sweep] the journal of ", folder_.path, " has a job of point '", task.point,
                            "', which the sweep has not"));
      const State& s = journal_.state(point);
      const bool waits = s.outcome == Outcome::none || (s.outcome == Outcome::paused && s.step < task.until);
      if (!waits || !is_newest(batch.number, task.point)) continue;
      tasks[t] = task.point;
      std::error_code error;
      any_code |= std::filesystem::exists(exit_file(batch.number, t), error);
    }
    if (tasks.empty()) return;
    const std::string job = batch.job.empty() ? slurm::job_named(batch.name).id : batch.job;
    if (job.empty() && !any_code) return;  // it was never submitted
    for (const auto& [t, id] : tasks) watch(id, job.empty() ? "" : str(job, "_", t), exit_file(batch.number, t));
  }

  // Returns false if the point was submitted again in a later array: it belongs to its last array.
  bool is_newest(int64_t number, const std::string& point) const {
    return std::none_of(journal_.batches().begin(), journal_.batches().end(), [&](const Batch& later) {
      return later.number > number && std::any_of(later.tasks.begin(), later.tasks.end(),
                                                  [&](const Batch::Task& task) { return task.point == point; });
    });
  }

  // Unique to this sweep, because the name contains a hash of its folder.
  std::string array_name() const {
    std::ostringstream name;
    const std::string folder = std::filesystem::weakly_canonical(folder_.path).string();
    name << "lmx-" << plan_.name << "-" << std::hex << std::hash<std::string>()(folder) << "-" << std::dec << batches_;
    return name.str();
  }

  // Returns the command line of a task. Its output is appended to that of earlier starts.
  static std::string task_line(const jobs::Job& job) {
    std::string line;
    const int64_t ranks = job.demand.processes;
    if (ranks > 1) line = str("srun --mpi=${SLURM_MPI_TYPE:-pmix} --kill-on-bad-exit=1 -n ", ranks, " ");
    for (const std::string& word : job.words) line += shell_quoted(word) + " ";
    return str("exec ", line, ">> ", shell_quoted(job.log), " 2>&1\n");
  }

  // Slurm's signals (preemption, scancel, a time limit) are passed to the run, which writes a checkpoint and ends.
  std::string script(int64_t batch) const {
    const std::string absolute = std::filesystem::absolute(base(batch)).string();
    return str("#!/bin/bash\nexport LC_ALL=C\nbase=", shell_quoted(absolute), "\ntask=$SLURM_ARRAY_TASK_ID\n",
               "line=$(sed -n \"$((task + 1))p\" \"$base.tasks\")\n",
               "trap '[ -n \"$run\" ] && kill -TERM \"$run\"' TERM INT\n", "eval \"$line\" &\nrun=$!\n",
               "while :; do\n  wait \"$run\"\n  code=$?\n  kill -0 \"$run\" 2> /dev/null || break\ndone\n",
               "echo \"$code\" > \"$base.$task.exit.tmp\" && mv \"$base.$task.exit.tmp\" \"$base.$task.exit\"\n",
               "exit \"$code\"\n");
  }

  void submit(const std::vector<const jobs::Job*>& tasks) {
    std::error_code error;
    std::filesystem::create_directories(options_.folder, error);
    const jobs::Demand& demand = tasks[0]->demand;
    ++batches_;
    Batch batch{batches_, array_name(), "", {}};
    std::string lines;
    for (size_t t = 0; t < tasks.size(); ++t) {
      jobs::prepare(*tasks[t]);
      std::filesystem::remove(exit_file(batch.number, t), error);
      lines += task_line(*tasks[t]);
      batch.tasks.push_back({tasks[t]->id, tasks[t]->until});
    }
    write_file(base(batch.number) + ".tasks", lines);
    write_file(base(batch.number) + ".sh", script(batch.number));
    journal_.submitting(batch);
    const std::string limit = options_.jobs > 0 ? str("%", options_.jobs) : "";
    std::vector<std::string> words{"--no-requeue", "--job-name=" + batch.name,
                                   str("--array=0-", tasks.size() - 1, limit), str("--ntasks=", demand.processes),
                                   str("--output=", base(batch.number), ".%a.out")};
    if (demand.threads > 0) words.push_back(str("--cpus-per-task=", demand.threads));
    words.insert(words.end(), options_.scheduler.begin(), options_.scheduler.end());
    words.push_back(base(batch.number) + ".sh");
    const std::string job = slurm::submit(std::move(words));
    journal_.submitted(batch.number, job);
    say(LogLevel::info, str("submitted ", plural(tasks.size(), "point"), " as array job ", job));
    for (size_t t = 0; t < tasks.size(); ++t) watch(tasks[t]->id, str(job, "_", t), exit_file(batch.number, t));
  }

  const Plan& plan_;
  const Folder folder_;
  Journal& journal_;
  int64_t batches_ = 0;
};

}  // namespace

std::unique_ptr<jobs::Launcher> slurm_launcher(const Plan& plan, const Folder& folder, const LaunchOptions& options,
                                               Journal& journal) {
  return std::make_unique<ArrayLauncher>(plan, folder, options, journal);
}

}  // namespace lmx::app::sweep
