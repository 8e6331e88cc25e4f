// A parameter server that is divided over the ranks, and its workers: asynchronous SGD (Dean et al. 2012; Xiao 2017,
// section 2; FACTS A2.1).
//
// Every rank is a worker and keeps a shard: of each parameter the rows [chunk_begin(n, r, G), chunk_begin(n, r + 1,
// G)). A worker pulls values into its replica, computes the gradient of its own minibatch and pushes it; the server
// updates at once, with a learning rate and an optimizer as the recipe says. Pulls and pushes happen one after the
// other, on a simulated clock where ranks are threads, as they come where ranks are processes. Updates between a
// worker's pull and its push are the staleness of that push.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lmx/sync.h"
#include "lmx/traits.h"

namespace lmx {

// `delay:` of a rule: how long a step of a worker takes on the simulated clock of virtual ranks.
struct LMX_API DelayConfig {
  std::string kind = "exponential";  // fixed, exponential, trace
  double mean = 1;                   // of a step, in simulated seconds
  double spread = 0;                 // workers differ in speed: the mean of one is mean (1 + spread u), u in [-1, 1)
  std::string file;                  // trace: durations, a line a step
  void fields(Fields& f);
};

// Keys of a rule whose parameters are on a server.
struct LMX_API ServerConfig {
  CodecConfig codec;  // of what is pushed
  DelayConfig delay;
  std::string schedule, replay;  // files: the order of pulls and pushes, written or repeated
  void fields(Fields& f);
  void check(const std::string& where) const;
  // The trait worker_clock: a worker has one clock, which all rules of a recipe must share.
  Traits traits() const;
};

namespace server {
class Link;
}

struct ServerTools {
  ParameterStore* server = nullptr;   // whole parameters, shared by the ranks of a process
  ParameterStore* replica = nullptr;  // this worker's own
  std::function<std::unique_ptr<Optimizer>()> make_optimizer;
  server::Link* link = nullptr;  // to shards in other processes, the same for all rules; null: all are in this one
};

class LMX_API ServerStrategy : public SyncStrategy {
 public:
  ServerStrategy(ServerConfig config, SyncEnv env);
  ~ServerStrategy() override;
  ServerStrategy* server() override { return this; }
  const ServerConfig& config() const;

  // Collective; once, before all that follows.
  void attach(Context& ctx, const ServerTools& tools);
  void begin_step(Context& ctx, std::span<const Batch> share, StepPlan& plan) override;
  // Leaves of the replica's gradients (coalesced) what the step will push, before their norm is taken.
  void select(Context& ctx);
  // Only the worker whose turn it is calls these. pull() brings the rows of the step; push() takes the gradients of the
  // replica that select() has left (clipping scales them in place).
  void pull(Context& ctx);
  void push(Context& ctx, double lr, const ClipResult& clipped);
  // Enters the ledger for what this rank's shard has exchanged with other ranks since.
  void count_served(Context& ctx);
  // Collective, while nobody pulls or pushes: ServerTools::server then has every shard's values.
  void publish(Context& ctx);

  void reduce(Context& ctx, std::span<Var> unit) override;  // InternalError: nothing is summed over ranks
  bool owns_update(const Var&) const override { return true; }
  bool replicated() const override { return false; }
  StateDict state() const override;
  void load(Context& ctx, const std::vector<StateDict>& ranks) override;
  // What this rank sends for a step of every worker: as one its requests and pushes, as a shard its replies.
  int64_t expected_bytes(const Traffic& traffic) const override;
  int64_t pair_bytes() const override;
  std::vector<std::string> warnings(bool loss_scaled) const override;
  std::string describe(int ranks) const override;
  std::map<std::string, CodecHealth> take_health() override;
  std::vector<std::pair<std::string, double>> take_values() override;  // staleness at this rank's shard
  std::string summary() const override;

 protected:
  // The rows of a parameter that a step pulls and pushes, ascending, by name; parameters that are absent move all of
  // them, and of a row-sparse gradient those that it has.
  virtual std::map<std::string, std::vector<int32_t>> choose_rows(Context& ctx, std::span<const Batch> share,
                                                                  StepPlan& plan);
  const SyncEnv& env() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx
