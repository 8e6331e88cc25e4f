// The ledger in sums: bytes by parameter group and collective, of one rank and of all.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lmx/codec.h"
#include "lmx/memory.h"
#include "runfiles/metrics.h"

namespace lmx::train {

// Bytes and seconds of one parameter group in one collective.
struct TrafficSum {
  int64_t calls = 0, sent = 0, received = 0;
  double seconds = 0;
  void add(const TrafficSum& other);
};
using TrafficTable = std::map<std::pair<std::string, std::string>, TrafficSum>;  // by group and collective

class TrafficCounter {
 public:
  void add(const std::vector<LedgerEntry>& entries);
  const TrafficTable& window() const { return window_; }  // since the last next_window()
  void next_window() { window_.clear(); }
  // Counts a table that has become a record of `steps` steps. A run's end and `lmx report` print sums of the same
  // records, so that they agree; traffic after the last record (the last validation and checkpoint) is in neither.
  void record(const TrafficTable& table, int64_t steps);
  const TrafficTable& recorded() const { return recorded_; }
  // recorded() and its steps, for other ranks to read.
  std::string to_json() const;

 private:
  TrafficTable window_, recorded_;
  int64_t recorded_steps_ = 0;
};

// One record a rank, split "rank": {"step":50,"split":"rank","rank":3,"comm/tables/all_gather/sent_bytes":...,
// "memory/communication_peak_bytes":...}.
Record rank_record(int64_t step, int rank, const TrafficTable& table, const MemoryStats& memory);

// What codecs lost by the lines of ranks' records (health_values() in lmx/codec.h), over all of them.
std::map<std::string, CodecHealth> health_of(const std::vector<std::string>& lines);

// Sum of sent and received over a table.
TrafficSum sum_of(const TrafficTable& table);
// The same without what checkpoints took, so that when a run saves does not change what its steps are said to send.
TrafficSum sum_of_steps(const TrafficTable& table);

// Seconds of a worker of parameter servers in which it pulled, pushed or waited for its turn.
double seconds_at_servers(const TrafficTable& table);

// Lines for people, from the to_json() of each rank: by group and collective the calls and the bytes sent and received
// of a rank and step, their mean over ranks and the most of any rank.
std::vector<std::string> traffic_lines(const std::vector<std::string>& ranks);

}  // namespace lmx::train
