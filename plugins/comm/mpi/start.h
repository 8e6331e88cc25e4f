// Starts the ranks of a job: lmx runs itself under mpirun.
#pragma once

#include <string>
#include <vector>

namespace lmx_mpi {

// Runs this process's own command line as `ranks` processes under mpirun, and always throws lmx::EndProcess with their
// exit code. This process only forwards signals, and reports how mpirun ended if no rank has printed an error.
// UserError: no mpirun on PATH, or this process was itself started that way and has no rank.
[[noreturn]] void start_ranks(int ranks, const std::string& path);

// mpirun as a child process of lmx.

// Runs `command` (mpirun with its arguments, for `ranks` ranks) to its end: forwards its messages to stderr and signals
// to it, and kills ranks that mpirun has left behind. Then throws lmx::EndProcess (processes/local_job.h). RunError: it
// cannot be started.
[[noreturn]] void run_mpirun(int ranks, const std::vector<std::string>& command);

}  // namespace lmx_mpi
