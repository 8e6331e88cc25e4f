// The memory and the exchange of a step, found by making it. On a device that counts
// (backend/counting/device.h) this costs neither memory nor time; on another one it is a measurement.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/counting/record.h"
#include "comm/counting.h"
#include "data/drawn_text.h"
#include "lmx/comm.h"
#include "lmx/param_server.h"
#include "train/session.h"

namespace lmx {

// The memory of two steps and a validation on the rank that needs most. One worker of a parameter server is counted.
struct StepMemory {
  MemoryStats training;    // peaks of two steps; from the second on, residuals and the optimizer's state exist
  MemoryStats evaluation;  // peaks of the validation of one batch, which begins with all that training keeps
  std::vector<std::vector<LedgerEntry>> ledgers;  // of the second step, by rank
  CountedPass largest, last;                      // passes of a rank that was counted alone (StepRecord)
  std::vector<CountedWork> update;                // of that rank, the last one
  std::vector<UnitTime> units;  // of a rank that was counted alone: the exchange of the second step, in its order
  ServerBytes server;           // of a worker's second step, of all rules
  std::map<std::string, int64_t> rows;  // by parameter: those that this step's update changes, or a worker pushes
};

// Makes the first two steps of the recipe and validates a batch, on the ranks that `group` runs.
StepMemory run_steps(const Recipe& recipe, CommGroup& group, const SessionStart& start);
// The same on one rank of a group whose other ranks do not exist, on a device that counts. `law`: of the words of the
// other ranks.
StepMemory count_steps(const Recipe& recipe, const comm::CountedRank& rank, const SessionStart& start,
                       const WordLaw& law = {});

}  // namespace lmx
