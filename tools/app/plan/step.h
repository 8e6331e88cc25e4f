// A step of ranks that are in step with each other, as a sequence of events: passes, exchanges beside backward, update.
#pragma once

#include <cstdint>
#include <vector>

#include "app/plan/wire.h"
#include "app/plan/work.h"

namespace lmx::plan {

// The unequal times of sub-batches (Ott 2018, section 5): a rank waits for the slowest one in each step.
struct Spread {
  double relative = 0;  // standard deviation of the time of a pass, divided by its mean
  // The mean of the slowest of `ranks` sums of `passes` times, divided by the mean of a sum. The sums are taken as
  // normally distributed.
  double slowest(int ranks, double passes) const;
};

// The exchange of one unit, as the scheduler of a run sees it.
struct UnitWork {
  double ready_s = 0;     // from the begin of the last backward until all its gradients are complete
  double transfer_s = 0;  // on the links
  double local_s = 0;     // the rank's own work: to encode, add and decode
  double beside = 0;      // DeviceConfig::beside: beside backward its own work takes 1 + beside times as long
  double delay_s = 0;     // by which the whole exchange delays a backward beside it
};

struct StepTime {
  double compute_s = 0;  // passes and update, of the slowest rank
  double wait_s = 0;     // of it: what the slowest rank needs more than the mean one
  double delay_s = 0;    // of it: by exchanges beside backward that need the same cores
  double comm_s = 0;     // all exchanges
  double exposed_s = 0;  // the part of it during which no rank computes
  double hidden_s() const { return comm_s - exposed_s > 1e-12 ? comm_s - exposed_s : 0; }  // without rounding errors
  double step_s() const { return compute_s + exposed_s; }
};

// Units are exchanged one after the other in their order, each when its gradients are complete on all ranks and the
// unit before it has ended; `overlap` false: none before backward has ended. That is the rule of lmx::Exchanger and its
// queue (core/sync/unit_queue.h).
StepTime step_time(const Work& work, const std::vector<UnitWork>& units, int ranks, const Spread& spread, bool overlap);

}  // namespace lmx::plan
