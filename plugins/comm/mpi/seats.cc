#include "seats.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace lmx_mpi {

Seat own_seat() {
  Seat seat;
  gethostname(seat.host, sizeof seat.host - 1);
  seat.pid = getpid();
  struct stat space {};
  if (stat("/proc/self/ns/pid", &space) == 0) seat.pid_space = space.st_ino;
  CPU_ZERO(&seat.cpus);
  sched_getaffinity(0, sizeof seat.cpus, &seat.cpus);
  return seat;
}

std::vector<Seat> gather_seats(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  std::vector<Seat> seats(static_cast<size_t>(size));
  const Seat own = own_seat();
  MPI_Allgather(&own, sizeof own, MPI_BYTE, seats.data(), sizeof own, MPI_BYTE, comm);
  return seats;
}

std::vector<std::string> hosts_of(const std::vector<Seat>& seats) {
  std::vector<std::string> hosts;
  for (const Seat& seat : seats) hosts.emplace_back(seat.host);
  return hosts;
}

int fair_threads(const std::vector<Seat>& seats, int self) {
  const Seat& own = seats[static_cast<size_t>(self)];
  double share = 0;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &own.cpus)) continue;
    share += 1.0 / static_cast<double>(std::count_if(seats.begin(), seats.end(), [&](const Seat& s) {
               return std::string_view(s.host) == own.host && CPU_ISSET(cpu, &s.cpus);
             }));
  }
  return std::max(1, static_cast<int>(share + 1e-6));
}

int open_process(const Seat& own, const Seat& other) {
  if (std::string_view(own.host) != other.host || own.pid_space == 0 || own.pid_space != other.pid_space) return -1;
  return static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(other.pid), 0));
}

}  // namespace lmx_mpi
