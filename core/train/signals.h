// SIGINT and SIGTERM while a run trains: a flag that the loop reads between steps.
#pragma once

#include <csignal>

#include "lmx/api.h"

namespace lmx::train {

// Installs the handlers for its lifetime. The second signal of a kind ends the process at once, as without lmx.
// One at a time in a process.
class LMX_API SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
  static int received();  // SIGINT, SIGTERM, or 0

 private:
  struct sigaction before_int_ {
  }, before_term_{};
};

}  // namespace lmx::train
