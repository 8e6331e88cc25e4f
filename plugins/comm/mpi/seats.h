// Where the ranks of a job sit: host, process and cores of each, exchanged once.
#pragma once

#include <mpi.h>
#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lmx_mpi {

struct Seat {
  char host[64] = {};
  int64_t pid = 0;
  uint64_t pid_space = 0;  // which table of processes the pid is of; 0: unknown
  cpu_set_t cpus = {};     // on which the process may run
};

Seat own_seat();
// Collective.
std::vector<Seat> gather_seats(MPI_Comm comm);
std::vector<std::string> hosts_of(const std::vector<Seat>& seats);

// Threads for rank `self` when the ranks of a host divide its cores: its own cores, each shared with those who may use
// it too. At least 1.
int fair_threads(const std::vector<Seat>& seats, int self);

// A descriptor that poll() reports when the process of `other` ends, or -1 where that cannot be had: another host,
// another table of processes, an old kernel.
int open_process(const Seat& own, const Seat& other);

}  // namespace lmx_mpi
