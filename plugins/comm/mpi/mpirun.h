// mpirun as a child process of lmx.
#pragma once

#include <string>
#include <vector>

namespace lmx_mpi {

// Runs `command` (mpirun with its arguments, for `ranks` ranks) to its end: forwards its messages to stderr and signals
// to it, and kills ranks that mpirun has left behind. Then throws lmx::EndProcess (processes/local_job.h). RunError: it
// cannot be started.
[[noreturn]] void run_mpirun(int ranks, const std::vector<std::string>& command);

}  // namespace lmx_mpi
