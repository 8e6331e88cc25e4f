// Signals that end a run early, while it trains: a flag that the loop reads between steps.
#pragma once

#include <array>
#include <csignal>
#include <string>

namespace lmx::train {

// Installs the handlers for its lifetime. SIGINT and SIGTERM stop the run; so do SIGHUP (a closed terminal), SIGUSR1
// and SIGUSR2 (what Slurm's --signal sends before a job's time is up), which count as SIGTERM. The second SIGINT or
// SIGTERM ends the process at once, as without lmx; the others may come several times. A SIGHUP that is ignored already
// (nohup) stays ignored. One guard at a time in a process.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
  static int received();  // SIGINT, SIGTERM, or 0
  // The name of the signal that this process received; of `otherwise`, another rank's, if it received none.
  static std::string name(int otherwise);

 private:
  std::array<struct sigaction, 5> before_{};
};

}  // namespace lmx::train
