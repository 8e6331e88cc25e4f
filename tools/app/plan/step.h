// A step as a sequence of events: of ranks that are in step with each other (passes, exchanges beside backward,
// update), and of the workers of a parameter server (pulls, passes and pushes, each worker at its own pace).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "app/memory/counted.h"
#include "app/plan/machine.h"
#include "app/plan/work.h"
#include "lmx/param_server.h"
#include "lmx/random.h"

namespace lmx::app::plan {

// The unequal times of sub-batches (Ott 2018, section 5): a rank waits for the slowest one in each step.
struct Spread {
  double relative = 0;  // standard deviation of the time of a pass, divided by its mean
  // The mean of the slowest of `ranks` sums of `passes` times, divided by the mean of a sum. The sums are taken as
  // normally distributed.
  double slowest(int ranks, double passes) const;
};

// The exchange of one unit, as the scheduler of a run sees it.
struct UnitWork {
  double ready_s = 0;     // from the begin of the last backward until all its gradients are complete, or until the
                          // gather of its values may begin; less than 0: in the forward before
  double transfer_s = 0;  // on the links
  double local_s = 0;     // the rank's own work: to encode, add and decode
  double beside = 0;      // DeviceConfig::beside: beside backward its own work takes 1 + beside times as long
  double delay_s = 0;     // by which the whole exchange delays a backward beside it
  // When a pass needs the values that this exchange gathers, in the same seconds. Each pass gathers them.
  std::optional<double> needed_s = {};
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
// queue (core/sync/unit_queue.h). A pass waits for the gather of values that it needs; `overlap` false: a gather begins
// only then. Each pass waits as long as the last one, which also exchanges gradients.
StepTime step_time(const Work& work, const std::vector<UnitWork>& units, int ranks, const Spread& spread, bool overlap);

// The bytes of a worker's step.
struct WorkerBytes {
  ServerBytes others;         // with the shards of all other ranks
  int64_t own_replied = 0;    // values that its own shard replies
  int64_t pushed_values = 0;  // gradients of the rows that it pushes, before they are encoded
};

// A message of a worker to or from all shards: seconds on each link alone, and of the work of a shard for it.
struct ServerMessage {
  double node_s = 0;     // on the link of the worker's rank, or on that which the ranks of its node share
  double network_s = 0;  // on the link between nodes, which the ranks of its node share
  double shard_s = 0;    // every shard: reading the values that it replies, or decoding a push and updating
};

// A worker's step without other workers, in seconds.
struct WorkerStep {
  double compute_s = 0;  // passes, and clipping of the gradients
  double local_s = 0;    // writing what it pulls, encoding what it pushes
  ServerMessage pull, push;
  double latency_s = 0;  // of one message; 0 for one worker
  // Without compute_s. `update_s`: of an optimizer's step for one push, on one device.
  static WorkerStep of(const WorkerBytes& bytes, int ranks, const DeviceConfig& device, const LinksConfig& links,
                       double update_s);
};

// The durations of steps, relative to their mean, as the clock of the rules (`delay`) gives them, and the order of
// events if the rules replay one.
struct WorkerTimes {
  std::vector<std::vector<double>> relative;  // by worker and step; 1 in a replay
  std::vector<int32_t> order;                 // 2 worker, +1 for a push; empty: by time
  // `steps`: of each worker; a replay has its own. `seed`: of the recipe. UserError: a file of the rule that cannot be
  // read, a replay without a step of some worker.
  static WorkerTimes of(const ServerConfig& config, int ranks, int64_t steps, int64_t seed);
};

// Times are means over the steps of all workers, without those before the queues have filled and those after the first
// worker has finished.
struct WorkersTime {
  double step_s = 0;     // from a worker's pull to its next one
  double exposed_s = 0;  // the part of it during which the worker does not compute
  double updates_s = 0;  // updates a second, by all workers
  double staleness = 0;  // mean number of updates between a worker's pull and its push, over all steps
  int64_t most_stale = 0;
  int64_t events = 0;  // pulls and pushes that were simulated
};

// The steps of each worker that a plan simulates: about 20,000 of all workers together, but at least 4 and at most
// 2,000.
int64_t simulated_steps(int ranks);

// The rules of a run (core/sync/server): a worker asks for its turn, and shards answer all requests in the order of the
// turns; so a pull waits until every earlier push has arrived and is applied. Messages that share a link follow each
// other. A worker continues after a push without waiting for it, and computes only after its pull is complete.
// All shards are alike and get an equal part of every message, so the plan simulates one of them. The link of a rank or
// a node carries the messages of its own workers; it also carries those for its shards, which are as many in the other
// direction.
WorkersTime simulate_workers(const WorkerStep& step, const WorkerTimes& times, const LinksConfig& links);

}  // namespace lmx::app::plan
