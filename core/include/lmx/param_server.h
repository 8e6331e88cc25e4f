// A parameter server that is partitioned over the ranks, and its workers: asynchronous SGD (Dean et al. 2012; Xiao
// 2017, section 2).
//
// Every rank is a worker and owns a shard: the rows [chunk_begin(n, r, G), chunk_begin(n, r + 1, G)) of each parameter.
// A worker pulls values into its replica, computes the gradient of its own minibatch and pushes it. The server applies
// each push at once, with the recipe's learning rate and optimizer. Pulls and pushes happen one after the other. Their
// order follows a simulated clock if ranks are threads, and their arrival if ranks are processes. The staleness of a
// push is the number of updates since the worker's pull.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lmx/config.h"
#include "lmx/sync.h"

namespace lmx {

// `delay:` of a rule: the duration of a worker's step on the simulated clock of virtual ranks.
struct LMX_API DelayConfig {
  std::string kind = "exponential";  // fixed, exponential, trace
  double mean = 1;                   // of a step, in simulated seconds
  double spread = 0;  // workers differ in speed: one has the mean duration mean (1 + spread u), u in [-1, 1)
  std::string file;   // trace: durations, one line for each step
  void fields(Fields& f);
};

// Keys of a rule whose parameters are stored on a server.
struct LMX_API ServerConfig {
  CodecConfig codec;  // for pushes
  DelayConfig delay;
  std::string schedule, replay;  // files: the order of pulls and pushes, recorded or repeated
  void fields(Fields& f);
  void check(const std::string& where) const;
  // The trait worker_clock: a worker has one clock, which all rules of a recipe must share.
  Traits traits() const;
};

namespace server {
class Link;
}

// The bytes of a worker's step as if every shard were in another process: requests for rows (none if all rows are
// pulled), the values that shards reply, and the gradients that the worker pushes.
struct ServerBytes {
  int64_t requested = 0, replied = 0, pushed = 0;
};

struct ServerTools {
  ParameterStore* server = nullptr;   // complete parameters, shared by the ranks of a process
  ParameterStore* replica = nullptr;  // this worker's own
  std::function<std::unique_ptr<Optimizer>()> make_optimizer;
  server::Link* link = nullptr;  // to shards in other processes, shared by all rules; null: all shards are local
};

class LMX_API ServerStrategy : public SyncRule {
 public:
  ServerStrategy(ServerConfig config, SyncEnv env);
  ~ServerStrategy() override;
  ServerStrategy* server() final { return this; }
  const ServerConfig& config() const;
  const SyncEnv& env() const;

  // Collective. To be called once, before the functions below.
  void attach(Context& ctx, const ServerTools& tools);
  void begin_step(Context& ctx, std::span<const Batch> share, StepPlan& plan) override;
  // Reduces the replica's gradients (coalesced) to the rows that the step will push, before their norm is computed.
  void select(Context& ctx);
  // To be called only by the worker whose turn it is. pull() copies the rows of the step into the replica. push() sends
  // the gradients that select() has left in the replica; clipping scales them in place.
  void pull(Context& ctx);
  void push(Context& ctx, double lr, const ClipResult& clipped);
  // Enters in the ledger the bytes that this rank's shard has exchanged with other ranks since the last call.
  void count_served(Context& ctx);
  // The bytes of the last pull() and push(), if all shards are in this process; a count has the own shard only.
  const ServerBytes& bytes() const;
  // Collective; no rank may pull or push at the same time. Afterwards ServerTools::server has the values of every
  // shard.
  void publish(Context& ctx);

  StateDict state() const override;
  void load(Context& ctx, const std::vector<StateDict>& ranks) override;
  std::vector<std::string> warnings(bool loss_scaled) const override;
  std::string describe(int ranks) const override;
  std::map<std::string, CodecHealth> take_health() override;
  std::vector<std::pair<std::string, double>> take_values() override;  // staleness at this rank's shard
  std::string summary() const override;

 protected:
  // The rows of a parameter that a step pulls and pushes, ascending, by name. For a parameter that is absent, all rows
  // are pulled, and all rows of the gradient are pushed.
  virtual std::map<std::string, std::vector<int32_t>> choose_rows(Context& ctx, std::span<const Batch> share,
                                                                  StepPlan& plan);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx
