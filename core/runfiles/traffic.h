// Sums of the ledger: bytes by parameter group and collective, of one rank and of all ranks.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lmx/codec.h"
#include "lmx/tensor.h"
#include "runfiles/metrics.h"

namespace lmx {

// Calls, bytes and seconds of one parameter group in one collective.
struct TrafficSum {
  int64_t calls = 0, sent = 0, received = 0;
  double seconds = 0;
  int64_t sent_between_nodes = 0, received_between_nodes = 0;  // the part of the bytes that crosses nodes
  void add(const TrafficSum& other);
};
using TrafficTable = std::map<std::pair<std::string, std::string>, TrafficSum>;  // by group and collective

class TrafficCounter {
 public:
  void add(const std::vector<LedgerEntry>& entries);
  const TrafficTable& window() const { return window_; }  // since the last next_window()
  void next_window() { window_.clear(); }
  // Adds a table that was written as a record of `steps` steps. The end of a run and `lmx report` both print sums of
  // these records, so that they agree. Neither contains the traffic after the last record (last validation and
  // checkpoint).
  void record(const TrafficTable& table, int64_t steps);
  const TrafficTable& recorded() const { return recorded_; }
  // recorded() and the number of its steps, as text for other ranks.
  std::string to_json() const;

 private:
  TrafficTable window_, recorded_;
  int64_t recorded_steps_ = 0;
};

// The record of one rank, with split "rank":
// {"step":50,"split":"rank","rank":3,"comm/tables/all_gather/sent_bytes":..., "memory/communication_peak_bytes":...}.
// `nodes`: of the run. If there are several, sent_between_nodes_bytes and received_between_nodes_bytes follow.
Record rank_record(int64_t step, int rank, const TrafficTable& table, const MemoryStats& memory, int nodes);

// Quantisation errors of the codecs, summed over the lines of all ranks' records (health_values() in lmx/codec.h).
std::map<std::string, CodecHealth> health_of(const std::vector<std::string>& lines);

// The sum of all entries of a table.
TrafficSum sum_of(const TrafficTable& table);
// The same without the traffic of checkpoints and of control messages, which depend on how often a run saves and
// pauses.
TrafficSum sum_of_steps(const TrafficTable& table);

// Seconds in which a worker of parameter servers pulled, pushed or waited for its turn.
double seconds_at_servers(const TrafficTable& table);

// Lines of text from the to_json() of each rank. For each group and collective: calls, bytes sent and bytes received
// per rank and step, as mean and maximum over ranks; if any cross nodes, also the bytes sent to other nodes.
std::vector<std::string> traffic_lines(const std::vector<std::string>& ranks);

}  // namespace lmx
