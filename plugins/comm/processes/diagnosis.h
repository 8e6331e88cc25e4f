// Liveness check: the diagnosis of one rank from the heartbeats of the others. Pure functions: no messages, no clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lmx::processes {

enum class Move : int32_t {
  none,
  all_gather,
  gather_among,
  all_to_all,
  broadcast,
  barrier,
  all_reduce,
  send,
  receive,
  turn,
  finish,
  device
};
const char* name_of(Move move);
inline bool is_collective(Move move) {
  return move != Move::none && move != Move::send && move != Move::receive && move != Move::turn &&
         move != Move::device;
}

// The message of a heartbeat.
struct Beat {
  int64_t number = 0;       // of this heartbeat
  int64_t collectives = 0;  // entered so far, including the current one
  Move move = Move::none;   // in which the rank waits; none: it computes
  int32_t failed = 0;       // 1: the rank has an error and is about to report it; 2: another rank has reported one
  double still_s = 0;       // since it began to wait or to compute, or since it last sent or received data
};

// Another rank, as seen by this rank.
struct Peer {
  Beat beat;            // the last one received
  double silent_s = 0;  // since then
  bool ended = false;   // its process has ended (known only on the same host)
};

struct Limits {
  double silence_s = 30, lag_s = 300;  // lag_s 0: no limit
  bool alarm = false;                  // the launcher is ending the job, because of a rank that is silent
};

struct Diagnosis {
  enum Kind { fine, failed, ended, dropped, silent, differs, lags, stuck } kind = fine;
  std::vector<int> ranks;  // the ranks concerned
  bool operator==(const Diagnosis&) const = default;
};

// The most serious current problem. `peers` has one entry for each rank; of the entry of `self` only the heartbeat is
// used. In falling order: another rank is about to report an error, a process has ended, a rank is silent, ranks are in
// different collectives with the same count, ranks compute while others wait, all ranks wait. lag_s does not apply to a
// rank that still sends or receives data.
Diagnosis diagnose(int self, const std::vector<Peer>& peers, const Limits& limits);

// Seconds for which `self` waits before it reports, so that a lower rank with the same diagnosis can report first.
double patience(int self, const std::vector<Peer>& peers, const Diagnosis& diagnosis);

// The message for a diagnosis: "rank 2 of 4 on host h2 has not answered for 30 s". `hosts[r]`: host of rank r.
std::string sentence(const Diagnosis& diagnosis, int self, const std::vector<Peer>& peers,
                     const std::vector<std::string>& hosts);

}  // namespace lmx::processes
