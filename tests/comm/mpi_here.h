// Tests whether this machine and this process can start MPI jobs.
#pragma once

#include <cstdlib>
#include <string>

#include "paths.h"

namespace lmx_test {

// Returns why jobs cannot be started here, or "" if they can. Sets variables that their processes need. Ranks that
// share a few cores must not spin while they wait for threads of other ranks. In a sanitized build leaks are not
// checked, since no suppression can name Open MPI's unloaded parts; virtual ranks run the same code with leak checks.
inline std::string why_no_mpi() {
  if (on_path("mpirun.openmpi").empty() && on_path("mpirun").empty()) return "mpirun is not on PATH";
  setenv("OMP_NUM_THREADS", "1", 1);
  const std::string options = std::getenv("ASAN_OPTIONS") ? std::getenv("ASAN_OPTIONS") : "";
  setenv("ASAN_OPTIONS", (options + ":detect_leaks=0").c_str(), 1);
  return "";
}

}  // namespace lmx_test
