// The objects that training needs, built from a recipe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "recipe/components.h"
#include "recipe/exchanger.h"
#include "recipe/metrics.h"
#include "recipe/optimizer.h"
#include "sync/server/server_link.h"
#include "sync/server/worker_clock.h"
#include "train/carried_state.h"
#include "train/pair_costs.h"
#include "train/replicas.h"

namespace lmx {

// The file that stores the times of sub-batches, as PairCosts::to_json() writes them, if the batcher needs times.
inline constexpr const char* kCostsFile = "sub_batch_times.json";

// The inputs of a session besides its recipe.
struct SessionStart {
  std::string resumed = {};       // the folder of the run that is resumed, or ""
  std::function<Dataset()> open;  // the data that the recipe names; called once in a process
  // Where the ranks compute; empty: where the recipe says.
  std::optional<Device> device = {};
  // Called once in a process with the initial parameters. Replaces the values of those that start from another run. May
  // be empty.
  std::function<void(const std::vector<ParameterSpec>&, const Vocabulary&, ParameterStore&)> init = {};
};

// The objects that the ranks of one process share. They are equal on all ranks and change only in updates, which one
// rank makes for all.
struct SharedSession {
  // `times`: the sub-batch times of the run that is resumed, or "".
  SharedSession(const Recipe& r, Context& ctx, const SessionStart& start, const std::string& times);

  Dataset data;
  Network network;
  ParameterStore params;
  std::optional<PairCosts> costs;  // present if the batcher needs times
  std::unique_ptr<Batcher> batcher;
  int32_t separator = -1;  // separator_of()
  double lr_factor = 1;    // factor that lr_rule applies to the learning rate
  std::unique_ptr<Optimizer> optimizer;
  std::vector<RuleRate> rates;  // of the optimizer's rules
  std::vector<ClipRule> clip;
  Metrics metrics;
  std::optional<Ema> ema;
  int64_t ema_bytes = 0;  // of its averages
  int64_t total_steps = 0;
  WorkerBoard workers;  // used if ranks do not run in lockstep
};

// The rules of `sync` for this rank, with the keys of the run.
std::unique_ptr<Exchanger> make_sync(const Recipe& recipe, const Network& network, const Communicator& comm);

// The part of a run that belongs to one rank. It is built before the run's folder exists, so that an error in a recipe
// or its data leaves no files.
struct Session {
  Session(const Recipe& r, Communicator& c, const SessionStart& start);

  // This rank's sequences of each global batch: [first_sequence, first_sequence + sequences), possibly none.
  int64_t first_sequence = 0, sequences = 0;
  Recipe recipe;
  Communicator& comm;
  Tracer tracer;
  Context ctx;
  std::shared_ptr<SharedSession> shared;
  const Dataset& data;
  const Network& network;
  const Batcher& batcher;
  // The shared values, with gradients of this rank; but this rank's own values of all parameters if ranks are workers,
  // and of those of a ReplicaStrategy. The shared values of these are those of the server, or the anchors.
  ParameterStore params;
  ParameterStore summed;  // those of `params` that all ranks update together
  std::unique_ptr<Schedule> schedule;
  std::unique_ptr<Exchanger> sync;
  std::unique_ptr<CarriedState> carried;        // null if the batcher starts every sequence from a zero state
  std::unique_ptr<WorkerClock> clock;           // null if ranks run in lockstep
  std::unique_ptr<Replicas> replicas;           // null if no rule of `sync` is a ReplicaStrategy
  std::unique_ptr<server::Link> link;           // between workers in several processes
  bool leads() const { return ctx.rank == 0; }  // this rank writes the files that a run writes once
  bool asynchronous() const { return clock != nullptr; }
  // Whether this rank makes its steps without the others, because all its values are its own.
  bool separate_steps() const { return clock || (replicas && !sync->sums()); }
  // True if an item of the batch is a sub-batch of sentences.
  bool sub_batches() const { return batcher.plan().items == Items::sub_batches; }
  StepSize size_of_step(int64_t step) const;  // size of the global batch
  // This rank's memory. It includes the parameters and optimizer state that the rank shares with rank 0 of its process.
  MemoryStats memory() const;

 private:
  void make_workers();
  void make_replicas();
  void make_shards();
  void count_shared();
  std::vector<Tensor> held_;  // shared memory that counts as this rank's
};

}  // namespace lmx
