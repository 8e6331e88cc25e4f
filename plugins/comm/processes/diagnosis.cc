#include "diagnosis.h"

#include <algorithm>
#include <cmath>

#include "lmx/error.h"

namespace lmx::processes {
namespace {

template <class Condition>
std::vector<int> others_where(int self, size_t ranks, Condition&& condition) {
  std::vector<int> found;
  for (int r = 0; r < static_cast<int>(ranks); ++r)
    if (r != self && condition(r)) found.push_back(r);
  return found;
}

bool still_too_long(const Beat& beat, const Limits& limits) {
  return limits.lag_s > 0 && beat.still_s > limits.lag_s;
}
bool waits_too_long(const Beat& beat, const Limits& limits) {
  return still_too_long(beat, limits) && beat.move != Move::none && beat.move != Move::finish;
}

// The ranks for which this rank waits too long. In a collective these are the ranks that have entered the fewest
// collectives; if some of them compute, only those, because the others wait for them. In other operations these are the
// ranks that compute, because ranks are not synchronous there.
std::vector<int> laggards(int self, const std::vector<Peer>& peers, const Limits& limits) {
  const auto beat = [&](int r) -> const Beat& { return peers[static_cast<size_t>(r)].beat; };
  int64_t least = beat(self).collectives;
  for (const Peer& p : peers) least = std::min(least, p.beat.collectives);
  const bool collective = is_collective(beat(self).move);
  if (collective && least == beat(self).collectives) return {};
  const auto behind = [&](int r) { return !collective || beat(r).collectives == least; };
  const auto computes = [&](int r) { return behind(r) && beat(r).move == Move::none; };
  const auto still = [&](int r) { return still_too_long(beat(r), limits); };
  if (!others_where(self, peers.size(), computes).empty())
    return others_where(self, peers.size(), [&](int r) { return computes(r) && still(r); });
  const bool moving = !others_where(self, peers.size(), [&](int r) { return behind(r) && !still(r); }).empty();
  return moving || !collective ? std::vector<int>{} : others_where(self, peers.size(), behind);
}

// "rank 2 of 4 on host h2", "ranks 2, 3 of 4 (hosts h2, h3)"
std::string who(const Diagnosis& v, const std::vector<std::string>& hosts) {
  std::string ranks, places;
  for (const int r : v.ranks) {
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(r);
    const std::string& host = hosts[static_cast<size_t>(r)];
    if ((", " + places + ",").find(", " + host + ",") == std::string::npos)
      places += (places.empty() ? "" : ", ") + host;
  }
  return v.ranks.size() == 1 ? str("rank ", ranks, " of ", hosts.size(), " on host ", places)
                             : str("ranks ", ranks, " of ", hosts.size(), " (host ", places, ")");
}

std::string seconds(double s) {
  return s < 10 ? str(std::round(s * 10) / 10) : str(std::llround(s));
}

std::string place_of(const Beat& beat) {
  return beat.move == Move::none
             ? str("has computed for ", seconds(beat.still_s), " s after collective ", beat.collectives)
             : str("waits in ", name_of(beat.move), " (collective ", beat.collectives, ")");
}

}  // namespace

const char* name_of(Move move) {
  constexpr const char* kNames[] = {"none",      "all_gather", "gather_among", "all_to_all",
                                    "broadcast", "barrier",    "all_reduce",   "send",
                                    "receive",   "turn",       "finish",       "device_work"};
  return kNames[static_cast<int>(move)];
}

Diagnosis diagnose(int self, const std::vector<Peer>& peers, const Limits& limits) {
  const auto at = [&](int r) -> const Peer& { return peers[static_cast<size_t>(r)]; };
  const auto diagnosis = [&](Diagnosis::Kind kind, auto&& condition) {
    std::vector<int> ranks = others_where(self, peers.size(), condition);
    return Diagnosis{ranks.empty() ? Diagnosis::fine : kind, ranks};
  };
  const Beat& own = at(self).beat;
  Diagnosis v = diagnosis(Diagnosis::failed, [&](int r) { return at(r).beat.failed != 0; });
  if (v.kind == Diagnosis::fine) v = diagnosis(Diagnosis::ended, [&](int r) { return at(r).ended; });
  if (v.kind == Diagnosis::fine)
    v = diagnosis(limits.alarm ? Diagnosis::dropped : Diagnosis::silent,
                  [&](int r) { return at(r).silent_s > limits.silence_s; });
  if (v.kind != Diagnosis::fine) return v;
  if (is_collective(own.move)) {
    v = diagnosis(Diagnosis::differs, [&](int r) {
      const Beat& b = at(r).beat;
      return is_collective(b.move) && b.collectives == own.collectives && b.move != own.move;
    });
    if (v.kind != Diagnosis::fine) return v;
  }
  if (waits_too_long(own, limits)) v.ranks = laggards(self, peers, limits);
  if (!v.ranks.empty()) return {Diagnosis::lags, v.ranks};
  if (std::all_of(peers.begin(), peers.end(), [&](const Peer& p) { return waits_too_long(p.beat, limits); }))
    return {Diagnosis::stuck, others_where(self, peers.size(), [](int) { return true; })};
  return {};
}

double patience(int self, const std::vector<Peer>& peers, const Diagnosis& diagnosis) {
  // mpirun ends a job one second after one of its processes has died, and with -q it reports nothing.
  const bool brief = diagnosis.kind == Diagnosis::ended || diagnosis.kind == Diagnosis::dropped;
  const double step = brief ? 0.2 : 1, most = brief ? 0.6 : 5;
  int lower = 0;
  for (int r = 0; r < self; ++r) {
    const bool culprit = diagnosis.kind != Diagnosis::stuck &&
                         std::find(diagnosis.ranks.begin(), diagnosis.ranks.end(), r) != diagnosis.ranks.end();
    if (!culprit && !peers[static_cast<size_t>(r)].ended) ++lower;
  }
  // A rank that receives no heartbeats is probably disconnected itself, so it reports last.
  const bool alone =
      diagnosis.kind == Diagnosis::silent && peers.size() > 2 && diagnosis.ranks.size() + 1 == peers.size();
  // The last heartbeat of a process that has ended may still arrive.
  const double least = diagnosis.kind == Diagnosis::ended ? 0.1 : 0;
  return least + std::min(most, step * lower) + (alone ? 3 : 0);
}

std::string sentence(const Diagnosis& v, int self, const std::vector<Peer>& peers,
                     const std::vector<std::string>& hosts) {
  const auto at = [&](int r) -> const Peer& { return peers[static_cast<size_t>(r)]; };
  const Beat& own = at(self).beat;
  const bool one = v.ranks.size() == 1;
  switch (v.kind) {
    case Diagnosis::fine:
      return "";
    case Diagnosis::failed:
      return who(v, hosts) + (one ? " has" : " have") + " failed";
    case Diagnosis::ended:
      return who(v, hosts) + (one ? " has" : " have") + " ended without a word (killed, or out of memory?)";
    case Diagnosis::dropped:
      return who(v, hosts) + (one ? " does" : " do") +
             " not answer, and the launcher ends the job (killed, or a host is down or cut off?)";
    case Diagnosis::silent: {
      double longest = 0;
      for (const int r : v.ranks) longest = std::max(longest, at(r).silent_s);
      const std::string what =
          who(v, hosts) + (one ? " has" : " have") + " not answered for " + seconds(longest) + " s";
      if (peers.size() > 2 && v.ranks.size() + 1 == peers.size())
        return str(what, ": nobody answers rank ", self, " on host ", hosts[static_cast<size_t>(self)],
                   ", which may be the one that is cut off");
      return what +
             (one ? " (stopped, or its host is down or cut off?)" : " (stopped, or their hosts are down or cut off?)");
    }
    case Diagnosis::differs: {
      const int a = std::min(self, v.ranks[0]), b = std::max(self, v.ranks[0]);
      return str("rank ", a, " is in ", name_of(at(a).beat.move), " where rank ", b, " is in ",
                 name_of(at(b).beat.move), " (collective ", own.collectives, "): the ranks do not do the same");
    }
    case Diagnosis::lags:
      return str(who(v, hosts), one ? " lags: it " : " lag: the first ", place_of(at(v.ranks[0]).beat), "; rank ", self,
                 " has waited ", seconds(own.still_s), " s in ", name_of(own.move), " (collective ", own.collectives,
                 "); see comm.lag_s if so long a wait is in order");
    case Diagnosis::stuck: {
      std::string places;
      for (size_t r = 0; r < peers.size() && r < 8; ++r)
        places += str(r ? ", rank " : "rank ", r, " ", place_of(peers[r].beat));
      return str("every rank waits, for ", seconds(own.still_s), " s and longer: ", places,
                 peers.size() > 8 ? ", ..." : "");
    }
  }
  return "";
}

}  // namespace lmx::processes
