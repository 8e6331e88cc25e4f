// Launchers of a sweep's points: processes of this machine, and jobs of Slurm.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "app/jobs/cores.h"
#include "app/jobs/pool.h"
#include "app/jobs/slurm.h"
#include "app/print/shell.h"
#include "app/records/line_file.h"
#include "app/sweep/runner.h"
#include "base/clock.h"
#include "base/output_file.h"
#include "lmx/error.h"
#include "lmx/log.h"
#include "runfiles/checkpoint.h"

namespace lmx_cli::sweeps {

// Runs points as processes on this machine.

namespace {

using Clock = std::chrono::steady_clock;
using lmx::str;

// How long to wait for a run that another process still holds. If its sweep was killed, the run ends within a second.
constexpr auto kPatience = std::chrono::seconds(30);

class LocalLauncher : public Launcher {
 public:
  LocalLauncher(const Plan& plan, const Folder& folder, const LaunchOptions& options)
      : plan_(plan),
        folder_(folder),
        jobs_(static_cast<size_t>(std::max<int64_t>(1, options.jobs))),
        cores_(options.jobs, plan.points.size()) {}

  // Points end together with the process that started them, so there are none to recover.
  std::vector<size_t> recover(const std::vector<Batch>&) override { return {}; }

  size_t launch(const std::vector<Work>& waiting) override {
    size_t started = 0;
    for (const Work& work : waiting) {
      if (pool_.size() >= jobs_ || pool_.signal()) break;
      if (!cores_.free_for(plan_.points[work.point].demand) || held(work.point)) break;
      start(work);
      ++started;
    }
    return started;
  }

  std::vector<Finished> poll() override {
    std::vector<Finished> all;
    while (const std::optional<jobs::Ended> ended = pool_.poll()) {
      const auto run = running_.find(static_cast<size_t>(std::stoull(ended->id)));
      cores_.give_back(ended->cores);
      all.push_back({run->first, {ended->code, memory_kills() > run->second, ""}, ended->seconds});
      running_.erase(run);
    }
    return all;
  }

  std::vector<size_t> running() const override {
    std::vector<size_t> points;
    for (const auto& [point, kills] : running_) points.push_back(point);
    return points;
  }
  int signal() const override { return pool_.signal(); }
  bool outlives() const override { return false; }
  void stop() override {
    for (const auto& [point, kills] : running_) pool_.send(std::to_string(point), SIGTERM);
  }

 private:
  // True while another process still trains the point. UserError: that process does not end.
  bool held(size_t point) {
    if (!jobs::is_locked(folder_.run(plan_.points[point]))) {
      held_since_.reset();
      return false;
    }
    if (!held_since_) held_since_ = Clock::now();
    if (Clock::now() - *held_since_ > kPatience)
      throw lmx::UserError(str("[sweep] another process trains in ", folder_.run(plan_.points[point]),
                               " (its status.json names it); end it, then --resume ", folder_.path));
    return true;
  }

  void start(const Work& work) {
    const Point& point = plan_.points[work.point];
    const int64_t kills = memory_kills();
    forget_status(folder_, point);
    pool_.start({std::to_string(work.point), point_command(plan_, folder_, work), folder_.log(point),
                 cores_.take(point.demand)});
    running_.emplace(work.point, kills);
  }

  const Plan& plan_;
  const Folder folder_;
  const size_t jobs_;
  jobs::Cores cores_;
  std::map<size_t, int64_t> running_;  // by point: memory_kills() at its start
  std::optional<Clock::time_point> held_since_;
  jobs::Pool pool_;
};

}  // namespace

Launcher::~Launcher() = default;

std::unique_ptr<Launcher> local_launcher(const Plan& plan, const Folder& folder, const LaunchOptions& options) {
  return std::make_unique<LocalLauncher>(plan, folder, options);
}

std::vector<std::string> point_command(const Plan& plan, const Folder& folder, const Work& work) {
  const Point& point = plan.points[work.point];
  std::vector<std::string> words = jobs::run_command(folder.recipe(point), folder.run(point), plan.request.plugin_dirs);
  if (work.until > 0) words.insert(words.end(), {"--until", std::to_string(work.until)});
  return words;
}

void forget_status(const Folder& folder, const Point& point) {
  std::error_code error;
  std::filesystem::remove(folder.run(point) + "/status.json", error);
}

// Runs points as tasks of Slurm's array jobs. This program only submits and watches them; they continue when it ends.
//
//   slurm/K.tasks      one command per line, starting with that of array task 0
//   slurm/K.sh         the batch script
//   slurm/K.N.exit     the exit code of task N, as soon as it has one
//
// The array's name is in the journal before it is submitted, so an array that was submitted just before this program
// was killed is found again.

namespace {

namespace slurm = jobs::slurm;
using slurm::Answer;
using slurm::ask;
using slurm::one_line;

constexpr auto kAskEvery = std::chrono::seconds(2);

class SlurmLauncher : public Launcher {
 public:
  SlurmLauncher(const Plan& plan, const Folder& folder, const LaunchOptions& options, Journal& journal)
      : plan_(plan), folder_(folder), options_(options), journal_(journal) {}

  std::vector<size_t> recover(const std::vector<Batch>& batches) override {
    for (const Batch& batch : batches) {
      batches_ = std::max(batches_, batch.number);
      Array array{batch.number, batch.job, batch.name, {}};
      for (size_t t = 0; t < batch.tasks.size(); ++t) {
        const size_t point = plan_.index_of(batch.tasks[t].point);
        if (point == plan_.points.size())
          throw lmx::UserError(lmx::str("[sweep] the journal of ", folder_.path, " has a job of point '",
                                        batch.tasks[t].point, "', which the sweep has not"));
        const State& s = journal_.state(point);
        const bool waits =
            s.outcome == Outcome::none || (s.outcome == Outcome::paused && s.step < batch.tasks[t].until);
        if (waits && newest_task(batches, batch.number, batch.tasks[t].point))
          array.tasks[t] = {point, Clock::now(), 0};
      }
      if (array.tasks.empty()) continue;
      if (array.job.empty()) array.job = slurm::job_named(array.name).id;
      if (array.job.empty() && !left_anything(array)) continue;  // it was never submitted
      arrays_.push_back(std::move(array));
    }
    return running();
  }

  size_t launch(const std::vector<Work>& waiting) override {
    std::map<std::pair<int64_t, int64_t>, std::vector<Work>> kinds;  // by processes and threads
    for (const Work& work : waiting) {
      const Point& p = plan_.points[work.point];
      kinds[{p.demand.processes, p.demand.threads}].push_back(work);
    }
    for (const auto& [kind, works] : kinds) submit(works);
    return waiting.size();
  }

  std::vector<Finished> poll() override {
    if (jobs::SignalNote::count() > 0) signal_ = jobs::SignalNote::received();
    std::vector<Finished> all;
    const bool asking = Clock::now() - asked_ >= kAskEvery;
    if (asking) asked_ = Clock::now();
    for (Array& array : arrays_) look(array, asking, all);
    std::erase_if(arrays_, [](const Array& array) { return array.tasks.empty(); });
    return all;
  }

  std::vector<size_t> running() const override {
    std::vector<size_t> points;
    for (const Array& array : arrays_)
      for (const auto& [task, running] : array.tasks) points.push_back(running.point);
    return points;
  }
  int signal() const override { return signal_; }
  bool outlives() const override { return true; }
  void stop() override {
    for (const Array& array : arrays_) ask({"scancel", array.job});
  }

 private:
  struct Running {
    size_t point = 0;
    Clock::time_point since;
    int missed = 0;  // number of queries for which Slurm has not known it
  };
  struct Array {
    int64_t number = 0;
    std::string job, name;
    std::map<size_t, Running> tasks;
  };

  std::string base(int64_t batch) const { return str(folder_.path, "/slurm/", batch); }
  std::string exit_file(int64_t batch, size_t task) const { return str(base(batch), ".", task, ".exit"); }

  // Returns false if the point was submitted again in a later array: it belongs to its last array.
  static bool newest_task(const std::vector<Batch>& batches, int64_t number, const std::string& point) {
    for (const Batch& later : batches) {
      if (later.number <= number) continue;
      for (const Batch::Task& task : later.tasks)
        if (task.point == point) return false;
    }
    return true;
  }

  // Unique to this sweep, because the name contains a hash of its folder.
  std::string array_name() const {
    std::ostringstream name;
    const std::string folder = std::filesystem::weakly_canonical(folder_.path).string();
    name << "lmx-" << plan_.name << "-" << std::hex << std::hash<std::string>()(folder) << "-" << std::dec << batches_;
    return name.str();
  }

  bool left_anything(const Array& array) const {
    std::error_code error;
    for (const auto& [task, running] : array.tasks)
      if (std::filesystem::exists(exit_file(array.number, task), error)) return true;
    return false;
  }

  // Returns the command line of a task. Its output is appended to that of earlier starts.
  std::string task_line(const Work& work) const {
    const Point& point = plan_.points[work.point];
    std::string line;
    const int64_t ranks = point.demand.processes;
    if (ranks > 1) line = str("srun --mpi=${SLURM_MPI_TYPE:-pmix} --kill-on-bad-exit=1 -n ", ranks, " ");
    for (const std::string& word : point_command(plan_, folder_, work)) line += shell_quoted(word) + " ";
    return str("exec ", line, ">> ", shell_quoted(folder_.log(point)), " 2>&1");
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

  void submit(const std::vector<Work>& works) {
    std::error_code error;
    std::filesystem::create_directories(folder_.path + "/slurm", error);
    const Point& first = plan_.points[works[0].point];
    ++batches_;
    Batch batch{batches_, array_name(), "", {}};
    std::string tasks;
    Array array{batch.number, "", batch.name, {}};
    for (size_t t = 0; t < works.size(); ++t) {
      const Point& point = plan_.points[works[t].point];
      forget_status(folder_, point);
      std::filesystem::remove(exit_file(batch.number, t), error);
      tasks += task_line(works[t]) + "\n";
      batch.tasks.push_back({point.id, works[t].until});
      array.tasks[t] = {works[t].point, Clock::now(), 0};
    }
    lmx::write_file(base(batch.number) + ".tasks", tasks);
    lmx::write_file(base(batch.number) + ".sh", script(batch.number));
    journal_.submitting(batch);
    const std::string limit = options_.jobs > 0 ? str("%", options_.jobs) : "";
    std::vector<std::string> words{"--no-requeue", "--job-name=" + batch.name,
                                   str("--array=0-", works.size() - 1, limit), str("--ntasks=", first.demand.processes),
                                   str("--output=", base(batch.number), ".%a.out")};
    if (first.demand.threads > 0) words.push_back(str("--cpus-per-task=", first.demand.threads));
    words.insert(words.end(), options_.scheduler.begin(), options_.scheduler.end());
    words.push_back(base(batch.number) + ".sh");
    array.job = slurm::submit(std::move(words));
    journal_.submitted(batch.number, array.job);
    lmx::log_info(
        str("submitted ", works.size(), works.size() == 1 ? " point" : " points", " as array job ", array.job));
    arrays_.push_back(std::move(array));
  }

  // Collects tasks that have ended and, if `asking`, tasks that Slurm has lost.
  void look(Array& array, bool asking, std::vector<Finished>& all) {
    std::set<size_t> known;
    bool answered = false;
    if (asking) {
      const Answer a = array.job.empty() ? Answer{} : ask({"squeue", "-h", "-r", "-j", array.job, "-o", "%K"});
      answered = a.code == 0 || a.err.find("Invalid job id") != std::string::npos;
      std::istringstream lines(a.out);
      for (size_t task = 0; lines >> task;) known.insert(task);
    }
    for (auto t = array.tasks.begin(); t != array.tasks.end();) {
      const std::optional<Ending> ending = end_of(array, t->first, t->second, answered, known.contains(t->first));
      if (!ending) {
        ++t;
        continue;
      }
      all.push_back({t->second.point, *ending, lmx::seconds_since(t->second.since)});
      t = array.tasks.erase(t);
    }
  }

  std::optional<Ending> end_of(const Array& array, size_t task, Running& running, bool answered, bool known) const {
    const std::string job = array.job.empty() ? "" : str(array.job, "_", task);
    if (const std::optional<int> code = slurm::exit_code(exit_file(array.number, task))) {
      const bool killed = *code == 128 + SIGKILL && !job.empty() && slurm::state_of(job) == "OUT_OF_MEMORY";
      return Ending{*code, killed, ""};
    }
    if (known) running.missed = 0;
    if (!answered || known) return {};
    const std::optional<std::string> state = slurm::lost_state(job, ++running.missed);
    if (!state) return {};
    if (*state == "OUT_OF_MEMORY") return Ending{128 + SIGKILL, true, ""};
    return Ending{128 + SIGKILL, false, state->empty() ? "Slurm has lost it" : *state};
  }

  const Plan& plan_;
  const Folder folder_;
  const LaunchOptions options_;
  Journal& journal_;
  const jobs::SignalNote note_;
  std::vector<Array> arrays_;
  int64_t batches_ = 0;
  Clock::time_point asked_;
  int signal_ = 0;
};

}  // namespace

std::unique_ptr<Launcher> slurm_launcher(const Plan& plan, const Folder& folder, const LaunchOptions& options,
                                         Journal& journal) {
  return std::make_unique<SlurmLauncher>(plan, folder, options, journal);
}

}  // namespace lmx_cli::sweeps
