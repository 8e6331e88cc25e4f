// Counters of a rank since the last record. Checkpoints keep them, so that the record of a window in which a run was
// resumed counts all of its steps.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lmx/codec.h"
#include "lmx/sync.h"
#include "recipe/sync_rules.h"
#include "runfiles/traffic.h"

namespace lmx::train {

struct OpenWindow {
  int64_t steps = 0;
  TrafficTable traffic;
  std::map<std::string, CodecHealth> health;  // quantisation errors by parameter
  CommTimes times;

  // Adds what a later part of the window counted; residuals are those of the later part.
  void add(const OpenWindow& later);
  std::string to_json() const;  // exact
};

// The sum of what `texts`, from to_json(), hold; {} for none. UserError: a text that is none of ours; `from` names the
// checkpoint.
OpenWindow open_window(const std::vector<std::string>& texts, const std::string& from);

// The numbers of a checkpoint in which the ranks' windows are kept.
std::map<std::string, std::string> window_texts(const std::vector<std::string>& ranks);
// Those that rank `rank` of `size` takes over: its own, and those of ranks that are no more. `numbers` are a
// checkpoint's.
std::vector<std::string> windows_of(const std::map<std::string, std::string>& numbers, int rank, int size);

}  // namespace lmx::train
