#include "peer_memory.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <string>
#include <tuple>

#include "lmx/error.h"

namespace lmx_gloo {
namespace {

using Process = PeerMemory::Process;

uint64_t random_number() {
  uint64_t number = 0;
  if (getentropy(&number, sizeof number) != 0) throw lmx::RunError("[gloo] the system provides no random numbers");
  return number;
}

// The ranks of one host have equal ones.
using Host = std::tuple<std::string, uint64_t, uint64_t>;
Host host_of(const Process& process) {
  return {process.boot, process.pid_space, process.network_space};
}

// Identifies a namespace of this process, for example "pid". 0: unknown.
uint64_t own_space(const char* name) {
  struct stat space {};
  return stat(lmx::str("/proc/self/ns/", name).c_str(), &space) == 0 ? space.st_ino : 0;
}

Process own_process() {
  Process own;
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  boot.copy(own.boot, sizeof own.boot - 1);
  own.pid_space = own_space("pid");
  own.network_space = own_space("net");
  own.pid = getpid();
  return own;
}

// Yama, a module of many kernels, allows only ancestors of a process and one declared process with its descendants to
// read its memory. The ranks of a job are descendants of the process that has started this one: an lmx, torchrun or
// slurmstepd. PR_SET_PTRACER_ANY would admit every process of this user. Without Yama the call fails, and changes
// nothing. A starter that has ended, or that is process 1, would admit every process too.
void admit_ranks() {
  if (getppid() > 1) prctl(PR_SET_PTRACER, static_cast<unsigned long>(getppid()), 0, 0, 0);
}

iovec span_at(uint64_t address, size_t bytes) {
  return {reinterpret_cast<void*>(address), bytes};
}

}  // namespace

PeerMemory::PeerMemory(int rank, int ranks, bool use, const Gather& gather)
    : rank_(rank),
      use_(use),
      cookie_(std::make_unique<uint64_t>(random_number())),
      processes_(static_cast<size_t>(ranks)),
      reads_(processes_.size(), false),
      is_read_by_(processes_.size(), false) {
  Process own = own_process();
  own.cookie = *cookie_;
  if (use_) {
    admit_ranks();
    own.cookie_at = reinterpret_cast<uint64_t>(cookie_.get());
  }
  gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(processes_)));
  try_all();
  exchange_results(gather);
}

void PeerMemory::try_all() {
  const Process& own = processes_[static_cast<size_t>(rank_)];
  if (!use_ || own.boot[0] == '\0' || own.pid_space == 0 || own.network_space == 0) return;
  for (size_t r = 0; r < processes_.size(); ++r) {
    const Process& other = processes_[r];
    if (other.cookie_at == 0 || host_of(other) != host_of(own)) continue;
    reads_[r] = static_cast<int>(r) != rank_ && read(static_cast<int>(r), 0, nullptr, 0) == Result::done;
  }
}

// Each rank sends its results for the ranks of its host, in rank order, as a row of bytes. All rows are as long as that
// of the host with the most ranks.
void PeerMemory::exchange_results(const Gather& gather) {
  std::map<Host, std::vector<size_t>> hosts;
  for (size_t r = 0; r < processes_.size(); ++r) hosts[host_of(processes_[r])].push_back(r);
  size_t length = 0;
  for (const auto& [host, ranks] : hosts) length = std::max(length, ranks.size());
  const std::vector<size_t>& mates = hosts[host_of(processes_[static_cast<size_t>(rank_)])];
  std::vector<std::byte> row(length), rows(length * processes_.size());
  size_t own = 0;  // index of this rank in `mates`
  for (size_t i = 0; i < mates.size(); ++i) {
    row[i] = std::byte{reads(static_cast<int>(mates[i]))};
    if (mates[i] == static_cast<size_t>(rank_)) own = i;
  }
  gather(row, rows);
  for (const size_t r : mates) is_read_by_[r] = rows[r * length + own] == std::byte{1};
}

// Each read includes the cookie, because the kernel gives the number of a process that has ended to another one.
PeerMemory::Result PeerMemory::read(int from, uint64_t address, void* to, size_t bytes) const {
  const Process& process = processes_[static_cast<size_t>(from)];
  uint64_t cookie = 0;
  const iovec here[] = {{&cookie, sizeof cookie}, {to, bytes}};
  const iovec there[] = {span_at(process.cookie_at, sizeof cookie), span_at(address, bytes)};
  const ssize_t got = process_vm_readv(static_cast<pid_t>(process.pid), here, 2, there, 2, 0);
  if (got < 0) return errno == ESRCH ? Result::gone : Result::refused;
  if (got >= static_cast<ssize_t>(sizeof cookie) && cookie != process.cookie) return Result::gone;
  return got == static_cast<ssize_t>(sizeof cookie + bytes) ? Result::done : Result::refused;
}

}  // namespace lmx_gloo
