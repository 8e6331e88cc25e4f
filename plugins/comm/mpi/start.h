// lmx starts itself as the ranks of a job.
#pragma once

#include <string>

namespace lmx_mpi {

// Runs this process's own command line as `ranks` processes under mpirun and always throws lmx::EndProcess with their
// exit code: this process has nothing to do but to pass signals on, and to say how mpirun ended if no rank has printed
// an error. UserError: no mpirun on PATH, or this process was itself started that way and has no rank.
[[noreturn]] void start_ranks(int ranks, const std::string& path);

// In a rank: SIGUSR1 and SIGUSR2, which mpirun passes on at once, stand for SIGINT and SIGTERM, which it answers by
// killing the ranks one second later, before a checkpoint can be written.
void accept_forwarded_signals();

// In a rank: Open MPI writes to the connection of a rank that has died, of which this one is to say so, not to die too.
void ignore_broken_pipes();

}  // namespace lmx_mpi
