// The lines that a run prints at its start and at its end.
#pragma once

#include <string>

#include "app/runs/init_report.h"
#include "lmx/comm.h"
#include "runfiles/traffic.h"
#include "train/session.h"

namespace lmx {

// Prints what is trained: device, ranks, parameters, batch, rules and warnings.
void announce(const train::Session& session, const train::InitReport& init, const CommGroup& group,
              const std::string& directory);

// Collective. Reports the memory of rank 0 and, if there are several ranks, the maximum over ranks and the bytes of a
// step. Writes memory.json of the run.
void report_totals(train::Session& session, const train::TrafficCounter& traffic, const std::string& directory,
                   int64_t step);

}  // namespace lmx
