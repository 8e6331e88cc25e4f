// Slurm's commands, for programs that submit jobs and watch them.
#pragma once

#include <string>
#include <vector>

namespace lmx_cli::jobs::slurm {

struct Answer {
  int code = 0;
  std::string out, err;
};

// Slurm may not know a job any more although its exit code has not arrived yet (NFS). Ask this often before it counts
// as lost.
inline constexpr int kAsksBeforeLost = 3;

// Runs a command to its end. RunError: it cannot be started.
Answer ask(const std::vector<std::string>& words);
// Without newlines.
std::string one_line(std::string text);
// UserError: there is no Slurm.
void require();
// Runs sbatch with these options and arguments. Returns the id of the job. UserError: sbatch's own message.
std::string submit(std::vector<std::string> words);
// Returns the id of the job with a name; "": there is none in the queue. RunError: Slurm does not answer.
std::string job_named(const std::string& name);
// Returns the JobState of a job ("12", or "12_3" for a task of an array) that is over; "" if Slurm no longer lists it.
std::string state_of(const std::string& job);

}  // namespace lmx_cli::jobs::slurm
