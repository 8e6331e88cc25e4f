// Signals that end a run early: they set a flag that the training loop reads between steps.
#pragma once

#include <array>
#include <csignal>
#include <string>

namespace lmx {

// Installs the signal handlers for its lifetime. SIGINT and SIGTERM stop the run. SIGHUP (a closed terminal), SIGPIPE
// (no process reads the output any more), SIGUSR1 and SIGUSR2 (which Slurm's --signal sends before a job's time limit)
// are treated like SIGTERM. A second SIGINT or SIGTERM ends the process at once; the other signals may arrive several
// times. If SIGHUP (nohup) or SIGPIPE is already ignored, it stays ignored. REQUIRES: at most one guard in a process at
// a time.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
  static int received();  // SIGINT or SIGTERM, or 0 if no signal was received
  // For work before the first step, such as measurements: throws EndProcess if a signal was received.
  static void end_before_training();
  // The name of the signal that this process received. If it received none, the name of `otherwise`, another rank's
  // signal.
  static std::string name(int otherwise);

 private:
  std::array<struct sigaction, 6> before_{};
};

}  // namespace lmx
