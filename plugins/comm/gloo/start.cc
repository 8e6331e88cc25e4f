#include "start.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <optional>
#include <vector>

#include "lmx/error.h"
#include "lmx/launch.h"
#include "processes/local_job.h"

namespace lmx_gloo {
namespace {

using lmx::str;
using lmx::processes::Relay;
using Clock = std::chrono::steady_clock;

// How long the others may continue after a rank has failed. They need a second to report a lost rank; the next rank
// that would report the same at the start or end of a job does so three seconds later (process_group.cc).
constexpr std::chrono::milliseconds kToEnd{2500};

struct Ending {
  int rank = 0, status = 0;
};

std::vector<pid_t> pids_of(const std::map<pid_t, int>& running) {
  std::vector<pid_t> pids;
  for (const auto& [pid, rank] : running) pids.push_back(pid);
  return pids;
}

std::map<pid_t, int> start_all(int ranks, const std::string& folder, const Relay& messages) {
  const std::vector<std::string> command = lmx::own_command_line();
  setenv(kFolderVariable, folder.c_str(), 1);
  setenv("LMX_RANKS", std::to_string(ranks).c_str(), 1);
  std::map<pid_t, int> running;
  for (int rank = 0; rank < ranks; ++rank) {
    setenv("LMX_RANK", std::to_string(rank).c_str(), 1);
    running[lmx::processes::start_child(command, messages)] = rank;
  }
  return running;
}

bool is_disturbed(const Ending& end) {
  return WIFEXITED(end.status) && WEXITSTATUS(end.status) == kDisturbed;
}

// A signal is a cause; an exit code may be the consequence of another rank's end, and be seen first.
bool explains_more(const Ending& end, const std::optional<Ending>& known) {
  return end.status != 0 && (!known || (WIFSIGNALED(end.status) && !WIFSIGNALED(known->status)));
}

// Waits for all ranks. Returns the one whose end explains the failure of the job.
std::optional<Ending> wait_for_all(std::map<pid_t, int> running, Relay& messages,
                                   lmx::processes::ForwardedSignals& signals) {
  constexpr int kPollMs = 20;
  std::optional<Ending> failed;
  Clock::time_point since;
  while (!running.empty()) {
    messages.relay(kPollMs);
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto found = running.find(pid);
      if (found == running.end()) continue;
      const Ending end{found->second, status};
      if (explains_more(end, failed)) {
        if (!failed) since = Clock::now();
        failed = end;
      }
      running.erase(found);
      signals.to(pids_of(running));
    }
    // Ranks that have met already would report a disturbed one as lost.
    if (!failed || (Clock::now() - since <= kToEnd && !is_disturbed(*failed))) continue;
    lmx::processes::end_children();
    break;
  }
  messages.drain();
  return failed;
}

std::string describe(const Ending& end) {
  if (is_disturbed(end))
    return str("[gloo] rank ", end.rank,
               " has lost a connection while the ranks were meeting, and every rank is alive: "
               "another program of this host may have connected to a port of the job (docs/cluster.md)");
  if (!WIFSIGNALED(end.status))
    return str("[comm] rank ", end.rank, " ended with exit code ", WEXITSTATUS(end.status),
               ", and no rank has printed an error");
  const int signal = WTERMSIG(end.status);
  return str("[comm] rank ", end.rank, " was ended by ", lmx::processes::signal_text(signal),
             " and could not print why", lmx::processes::memory_hint(signal));
}

}  // namespace

void start_ranks(int ranks) {
  lmx::processes::warn_of_crowd(ranks, "torchrun or srun");
  const lmx::processes::JobFolder folder("lmx-gloo-");
  if (folder.path().empty()) throw lmx::RunError("[comm] no folder can be created in /dev/shm, where ranks meet");
  Relay messages;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  lmx::processes::ForwardedSignals signals;
  const std::map<pid_t, int> running = start_all(ranks, folder.path(), messages);
  messages.close_writer();
  signals.to(pids_of(running));
  const std::optional<Ending> failed = wait_for_all(running, messages, signals);
  signals.to({});
  lmx::processes::end_children();
  lmx::processes::end_job(ranks, failed ? failed->status : 0, messages, [&] { return describe(*failed); });
}

}  // namespace lmx_gloo
