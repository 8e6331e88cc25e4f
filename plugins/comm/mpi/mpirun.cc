#include "mpirun.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "lmx/error.h"
#include "processes/local_job.h"
#include "processes/relay.h"

namespace lmx_mpi {
namespace {

using lmx::str;
using lmx::processes::Relay;

struct Ending {
  int status = 0;     // of mpirun, from waitpid()
  bool hung = false;  // its ranks had ended, but mpirun had not
};

// Seconds that mpirun may continue to run after a rank has ended.
constexpr int kPatienceS = 5;

// After a rank has left without MPI_Finalize, Open MPI's mpirun may wait for one of its locks forever. An mpirun that
// was stopped waits for SIGCONT. In both cases it is killed.
Ending wait_for(pid_t mpirun, Relay& messages) {
  using Clock = std::chrono::steady_clock;
  constexpr int kPollMs = 20;
  constexpr auto kLookEvery = std::chrono::milliseconds(500);
  Ending end;
  auto looked = Clock::now(), attended = looked;  // last time without an ended rank
  while (waitpid(mpirun, &end.status, WNOHANG) != mpirun) {
    messages.relay(kPollMs);
    if (Clock::now() - looked < kLookEvery) continue;
    looked = Clock::now();
    const std::vector<std::pair<pid_t, bool>> children = lmx::processes::children_of(mpirun);
    const bool dead = std::any_of(children.begin(), children.end(), [](const auto& c) { return c.second; });
    if (!dead) attended = looked;
    if (looked - attended < std::chrono::seconds(kPatienceS)) continue;
    end.hung = true;
    for (const auto& [child, ended] : children) kill(child, SIGKILL);
    kill(mpirun, SIGKILL);
  }
  messages.drain();
  return end;
}

std::string describe(const Ending& end) {
  if (end.hung)
    return str("[comm] mpirun did not end, though its ranks had ended ", kPatienceS,
               " s before, and was killed (was it stopped?)");
  if (WIFSIGNALED(end.status))
    return str("[comm] mpirun was ended by ", lmx::processes::signal_text(WTERMSIG(end.status)),
               ", and its ranks with it");
  const int code = WEXITSTATUS(end.status);
  if (code > 128 && code < 128 + NSIG)
    return str("[comm] a rank was ended by ", lmx::processes::signal_text(code - 128),
               " and could not print why (mpirun's exit code ", code, ")", lmx::processes::memory_hint(code - 128));
  return str("[comm] mpirun ended with exit code ", code, ", and no rank has printed an error");
}

}  // namespace

void run_mpirun(int ranks, const std::vector<std::string>& command) {
  Relay messages;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  lmx::processes::ForwardedSignals signals;
  const pid_t child = lmx::processes::start_child(command, messages);
  messages.close_writer();
  signals.to({child});
  const Ending end = wait_for(child, messages);
  signals.to({});
  // The ranks of an mpirun that was killed are children of this process, which is their reaper.
  lmx::processes::end_children();
  lmx::processes::end_job(ranks, end.status, messages, [&] { return describe(end); });
}

}  // namespace lmx_mpi
