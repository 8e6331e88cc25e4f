// mpirun as a child process of lmx.
#pragma once

#include <string>
#include <vector>

namespace lmx_mpi {

struct JobEnd {
  int code = 0;       // lmx's exit code: 0, 1, 2, 130 or 143
  std::string error;  // reason for mpirun's failure if no rank has printed an error; else ""
};

// Runs `command` (mpirun with its arguments) to its end: forwards its messages to stderr and signals to it, and kills
// ranks that mpirun has left behind. RunError: it cannot be started.
JobEnd run_mpirun(const std::vector<std::string>& command);

}  // namespace lmx_mpi
