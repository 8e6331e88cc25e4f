// The memory of the other ranks of this host, which a rank may read if the kernel allows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace lmx_gloo {

class PeerMemory {
 public:
  // The data that a rank publishes about its process.
  struct Process {
    char boot[40] = {};          // identifies the running kernel, because host names may be equal by accident
    uint64_t pid_space = 0;      // PID namespace of `pid`
    uint64_t network_space = 0;  // network namespace, because one that is emulated acts as a separate host
    int64_t pid = 0;
    uint64_t cookie_at = 0;  // address of a random number in the process; 0: the rank neither reads nor is read
    uint64_t cookie = 0;     // that number
  };
  // Writes the bytes of all ranks one after the other, in rank order, to `all`. Collective.
  using Gather = std::function<void(std::span<const std::byte> own, std::span<std::byte> all)>;

  // Collective: each rank tries to read from each other rank of its host, and the ranks exchange the results. Without
  // `use`, this rank reads from none and is read by none. RunError: the system gives no random number.
  PeerMemory(int rank, int ranks, bool use, const Gather& gather);
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // Whether a test read has succeeded: by this rank from rank `other`; by rank `other` from this rank. Both ranks of a
  // pair have the same answers.
  bool reads(int other) const { return reads_[static_cast<size_t>(other)]; }
  bool is_read_by(int other) const { return is_read_by_[static_cast<size_t>(other)]; }

  // `refused`: the kernel does not read this memory, which may be that of a device's driver. `gone`: the process has
  // ended.
  enum class Result { done, refused, gone };
  // Copies `bytes` bytes from an address in rank `from` to `to`, which is undefined if the result is not `done`.
  // REQUIRES: reads(from).
  Result read(int from, uint64_t address, void* to, size_t bytes) const;

 private:
  void try_all();
  void exchange_results(const Gather& gather);

  int rank_;
  bool use_;
  std::unique_ptr<uint64_t> cookie_;
  std::vector<Process> processes_;  // of each rank
  std::vector<bool> reads_, is_read_by_;
};

}  // namespace lmx_gloo
