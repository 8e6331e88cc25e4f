// Starts the ranks of a job: lmx runs itself under mpirun.
#pragma once

#include <string>

namespace lmx_mpi {

// Runs this process's own command line as `ranks` processes under mpirun, and always throws lmx::EndProcess with their
// exit code. This process only forwards signals, and reports how mpirun ended if no rank has printed an error.
// UserError: no mpirun on PATH, or this process was itself started that way and has no rank.
[[noreturn]] void start_ranks(int ranks, const std::string& path);

}  // namespace lmx_mpi
