#include "placement.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace lmx::processes {

Placement own_placement() {
  Placement placement;
  gethostname(placement.host, sizeof placement.host - 1);
  placement.pid = getpid();
  struct stat space {};
  if (stat("/proc/self/ns/pid", &space) == 0) placement.pid_space = space.st_ino;
  CPU_ZERO(&placement.cpus);
  sched_getaffinity(0, sizeof placement.cpus, &placement.cpus);
  return placement;
}

std::vector<std::string> hosts_of(const std::vector<Placement>& placements) {
  std::vector<std::string> hosts;
  for (const Placement& placement : placements) hosts.emplace_back(placement.host);
  return hosts;
}

int fair_threads(const std::vector<Placement>& placements, int self) {
  const Placement& own = placements[static_cast<size_t>(self)];
  double share = 0;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &own.cpus)) continue;
    share += 1.0 / static_cast<double>(std::count_if(placements.begin(), placements.end(), [&](const Placement& s) {
               return std::string_view(s.host) == own.host && CPU_ISSET(cpu, &s.cpus);
             }));
  }
  return std::max(1, static_cast<int>(share + 1e-6));
}

int open_process(const Placement& own, const Placement& other) {
  if (std::string_view(own.host) != other.host || own.pid_space == 0 || own.pid_space != other.pid_space) return -1;
  return static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(other.pid), 0));
}

}  // namespace lmx::processes
