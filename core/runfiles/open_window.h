// Counters of a rank since the last record. Checkpoints store them. If a run is resumed between two records, the next
// record therefore counts all steps since the last one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lmx/codec.h"
#include "lmx/sync.h"
#include "runfiles/traffic.h"
#include "sync/unit_queue.h"

namespace lmx {

struct OpenWindow {
  int64_t steps = 0;
  TrafficTable traffic;
  std::map<std::string, CodecHealth> health;  // quantisation errors by parameter
  CommTimes times;

  // Adds the counters of a later part of the window. The residuals become those of the later part.
  void add(const OpenWindow& later);
  std::string to_json() const;  // exact
};

// The sum of the windows in `texts`, which to_json() has written; {} if there is none. UserError if a text is
// malformed; the message contains `from`, the name of the checkpoint.
OpenWindow open_window(const std::vector<std::string>& texts, const std::string& from);

// The numbers of a checkpoint that store the ranks' windows.
std::map<std::string, std::string> window_texts(const std::vector<std::string>& ranks);
// The windows that rank `rank` of `size` continues: its own, and those of ranks that no longer exist. `numbers` are
// those of a checkpoint.
std::vector<std::string> windows_of(const std::map<std::string, std::string>& numbers, int rank, int size);

}  // namespace lmx
