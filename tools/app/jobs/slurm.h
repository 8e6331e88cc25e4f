// Jobs of Slurm: its commands, and a launcher that watches jobs until each has an exit code.
#pragma once

#include <chrono>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/jobs/launcher.h"

namespace lmx::app::jobs {
namespace slurm {

struct Answer {
  int code = 0;
  std::string out, err;
};

// Runs a command to its end. RunError: it cannot be started.
Answer ask(const std::vector<std::string>& words);
// Without newlines.
std::string one_line(std::string text);
// UserError: there is no Slurm.
void require();
// Runs sbatch with these options and arguments. Returns the id of the job. UserError: sbatch's own message.
std::string submit(std::vector<std::string> words);
// A job in the queue; its state as "PENDING" or "COMPLETING".
struct Queued {
  std::string id, state;
};
// Returns the job with a name; an empty id: there is none in the queue. RunError: Slurm does not answer.
Queued job_named(const std::string& name);
// The same, but waits while the job completes, at most a minute: it then has left the queue, or waits in it again.
Queued settled_job_named(const std::string& name);

}  // namespace slurm

struct SlurmOptions {
  std::string noun;                    // what a job is: "point", "cell"
  std::string folder;                  // of scripts and exit codes
  int64_t jobs = 0;                    // at a time; 0: no limit
  std::vector<std::string> scheduler;  // options of sbatch
};

// A launcher whose jobs continue when this process ends. Their scripts write an exit code into a file. The code of a
// failure counts only when Slurm no longer has the job: a job of which a node fails may be queued again, although its
// script has recorded the failure of its ranks before. The file is removed when the result of the job is recorded.
class SlurmLauncher : public Launcher {
 public:
  explicit SlurmLauncher(SlurmOptions options);
  std::vector<Ended> poll() override;
  void recorded(const std::string& id) override;
  std::vector<std::string> running() const override;
  bool outlives() const override { return true; }
  void stop() override;

 protected:
  // `job`: "12", or "12_3" for a task of an array; "" if Slurm has it no longer.
  void watch(const std::string& id, const std::string& job, const std::string& exit_file);
  const SlurmOptions options_;

 private:
  struct Watched {
    std::string id, job, exit_file;
    std::chrono::steady_clock::time_point since;
    int missed = 0;     // number of queries for which Slurm has not known it
    bool held = false;  // Slurm holds it, and a warning has been logged
  };
  std::set<std::string> submitted() const;
  void look();
  void report_held(Watched& w, const std::string& reason) const;
  static std::optional<Ended> end_of(const Watched& w);

  std::list<Watched> watched_;
  std::map<std::string, std::string> exit_files_;  // by job that has ended
  std::chrono::steady_clock::time_point asked_;
};

}  // namespace lmx::app::jobs
