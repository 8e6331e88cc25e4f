// Points as tasks of Slurm's array jobs. This program only submits and watches them; they continue when it ends.
//
//   slurm/K.tasks      one command per line, starting with that of array task 0
//   slurm/K.sh         the batch script
//   slurm/K.N.exit     the exit code of task N, as soon as it has one, until the journal has it
//
// The array's name is in the journal before it is submitted, so an array that was submitted just before this program
// was killed is found again.
#include "app/jobs/slurm.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "app/print/shell.h"
#include "app/sweep/runner.h"
#include "base/output_file.h"
#include "lmx/error.h"

namespace lmx_cli::sweeps {
namespace {

namespace slurm = jobs::slurm;
using lmx::str;

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
        throw lmx::UserError(str("[sweep] the journal of ", folder_.path, " has a job of point '", task.point,
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
    lmx::write_file(base(batch.number) + ".tasks", lines);
    lmx::write_file(base(batch.number) + ".sh", script(batch.number));
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
    say(lmx::LogLevel::info,
        str("submitted ", tasks.size(), tasks.size() == 1 ? " point" : " points", " as array job ", job));
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

}  // namespace lmx_cli::sweeps
