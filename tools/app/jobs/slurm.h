// Slurm's commands, for programs that submit jobs and watch them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lmx_cli::jobs::slurm {

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
// Returns the JobState of a job ("12", or "12_3" for a task of an array) that is over; "" if Slurm no longer lists it.
std::string state_of(const std::string& job);

// Returns the exit code that a script has written to a file; nothing: none yet. 1: the file has another content.
std::optional<int> exit_code(const std::string& file);
// The state of a job of which Slurm has not known `missed` times in a row that it runs, although there is no exit code:
// state_of(), or "" for a job without an id. Nothing: the code may still arrive, because a file of another host may be
// visible here after a minute only (NFS).
std::optional<std::string> lost_state(const std::string& job, int missed);

}  // namespace lmx_cli::jobs::slurm
