// The ledger in sums: bytes by parameter group and collective, of one rank and of all.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lmx/codec.h"
#include "lmx/memory.h"
#include "train/metrics.h"

namespace lmx::train {

struct TrafficSum {
  int64_t calls = 0, sent = 0, received = 0;
  double seconds = 0;
};
using TrafficTable = std::map<std::pair<std::string, std::string>, TrafficSum>;  // by group and collective

class LMX_API TrafficCounter {
 public:
  void add(const std::vector<LedgerEntry>& entries);
  const TrafficTable& window() const { return window_; }  // since the last next_window()
  const TrafficTable& total() const { return total_; }
  void next_window() { window_.clear(); }

 private:
  TrafficTable window_, total_;
};

// One record a rank, split "rank": {"step":50,"split":"rank","rank":3,"comm/tables/all_gather/sent_bytes":...,
// "memory/communication_peak_bytes":...}.
LMX_API Record rank_record(int64_t step, int rank, const TrafficTable& table, const MemoryStats& memory);

// "codec/<parameter>/underflow": fractions of the values, and the relative error, appended to a record.
LMX_API void add_health(Record& record, const std::map<std::string, CodecHealth>& health);

// Sum of sent and received over a table.
LMX_API TrafficSum sum_of(const TrafficTable& table);

// Lines for people: group, collective, calls, bytes sent and received by one rank.
LMX_API std::vector<std::string> traffic_lines(const TrafficTable& table);

}  // namespace lmx::train
