// What one rank concludes from the signs of life of the others. Pure: no MPI, no clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lmx_mpi {

enum class Move : int32_t { none, all_gather, all_to_all, broadcast, barrier, all_reduce, send, receive, turn, finish };
const char* name_of(Move move);
inline bool is_collective(Move move) {
  return move != Move::none && move != Move::send && move != Move::receive && move != Move::turn;
}

// A sign of life, as it travels.
struct Beat {
  int64_t number = 0;       // of this beat
  int64_t collectives = 0;  // entered so far, the present one included
  Move move = Move::none;   // in which the rank waits; none: it computes
  int32_t failed = 0;       // 1: the rank has an error of its own and is about to say so; 2: another has said it
  double still_s = 0;       // since it began to wait or to compute, or since something last came or left
};

// Another rank, as seen from here.
struct Peer {
  Beat beat;            // its last
  double silent_s = 0;  // since then
  bool ended = false;   // its process is no more (known on the same host only)
};

struct Limits {
  double silence_s = 30, lag_s = 300;  // lag 0: none
  bool alarm = false;                  // the launcher is ending the job: who is silent is the reason
};

struct Verdict {
  enum Kind { fine, failed, ended, dropped, silent, differs, lags, stuck } kind = fine;
  std::vector<int> ranks;  // whom it is about
  bool operator==(const Verdict&) const = default;
};

// `peers` holds an entry per rank, that of `self` among them (its beat only is read). The worst that is so now: an
// error that another rank is about to tell, a process that ended, silence, ranks in different collectives at the same
// count, ranks that compute on while others wait, ranks that all wait. Whoever still moves bytes is not held to lag_s.
Verdict judge(int self, const std::vector<Peer>& peers, const Limits& limits);

// Seconds for which `self` leaves the telling to a lower rank that should have come to the same verdict.
double patience(int self, const std::vector<Peer>& peers, const Verdict& verdict);

// The message: "rank 2 of 4 on host h2 has not answered for 30 s". `hosts[r]` names the host of rank r.
std::string sentence(const Verdict& verdict, int self, const std::vector<Peer>& peers,
                     const std::vector<std::string>& hosts);

}  // namespace lmx_mpi
