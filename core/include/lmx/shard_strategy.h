// Ranks that divide the update (ZeRO, Rajbhandari et al. 2020): each one keeps the state of the optimizer for its part
// of every parameter only, gets the sum of the gradients for this part, updates it, and sends the new values to the
// others.
//
// All ranks have all values after each step, with the same bits as if every rank had made the whole update: sums have
// rank order, and an update gives an element the same bits if a part begins at another multiple of kSumBlock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lmx/optim.h"
#include "lmx/sync.h"

namespace lmx {

// Keys of a rule whose parameters have owners.
struct LMX_API ShardConfig {
  int64_t stage = 2;      // 1: gradients are kept until the update; 2: only the own part of their sum; 3: see stage()
  double bucket_mb = 25;  // megabytes of parameters whose gradients share one message; 0: each gradient separately
  CodecConfig codec;      // of gradients; sums and values are not encoded
  void fields(Fields& f);
  void check(const std::string& where) const;
  Traits traits() const;
};

// The parts of a parameter: rank r owns the elements [begin[r], begin[r + 1]) of its flat values. (ranks + 1) numbers,
// which begin with 0, ascend and end with the number of elements. The others are multiples of kSumBlock, or that
// number.
using Owners = std::vector<int64_t>;
using OwnersOf = std::map<std::string, Owners>;  // by parameter

// `load`: the elements that each rank owns of other parameters, to which both functions add.
//
// Each parameter as a whole belongs to one rank: the largest first, each to the rank with the least load, and the
// lowest of these.
LMX_API OwnersOf whole_owners(const std::vector<ParameterSpec>& params, std::vector<int64_t>& load);
// The blocks of kSumBlock elements of all these parameters, one parameter after the other, are divided into equal parts
// in rank order. If their number is not divisible by that of the ranks, those with the least load get one more.
LMX_API OwnersOf block_owners(const std::vector<ParameterSpec>& params, std::vector<int64_t>& load);

class LMX_API ShardStrategy : public SyncStrategy {
 public:
  ShardStrategy(const ShardConfig& config, SyncEnv env);
  ~ShardStrategy() override;
  ShardStrategy* shard() final { return this; }
  const SyncEnv& env() const;
  // 3: ranks also divide the values, and gather those of a unit before each use. Such a strategy can only be planned
  // (docs/shards.md): in a counted step it is that of stage 2, from which a plan derives stage 3.
  int64_t stage() const;

  // Buckets in the order in which backward finishes parameters. A bucket is closed when it reaches its size.
  std::vector<std::vector<std::string>> units(const std::vector<ParameterSpec>& params) const override;
  // The owners of all parameters of the rule, equal on all ranks. `whole`: parameters whose optimizer needs them as a
  // whole. Default: whole_owners() of these, then block_owners() of the others, unit by unit.
  virtual OwnersOf owners(const std::set<std::string>& whole) const;
  // Collective, possibly on a second thread while backward computes other parameters. `gradients`: this rank's
  // gradients of a unit, flat: first the part of each parameter that rank 0 owns, then those of rank 1, and so on;
  // `parts`: the elements of each rank's. Returns this rank's part of the sum over ranks, in rank order from +0. Not
  // called if the rule has a codec.
  virtual Tensor reduce_scatter(Context& ctx, const Tensor& gradients, const RankRows& parts);
  // Collective, after the update. `values`: those that this rank owns of a unit. Returns those of all ranks, in rank
  // order.
  virtual Tensor gather(Context& ctx, const Tensor& values, const RankRows& parts);
  std::string describe(int ranks) const override;
  std::vector<std::string> warnings(bool loss_scaled) const override;
  std::map<std::string, CodecHealth> take_health() override;

  // To be called once, before the functions below. `params`: all values, which the ranks of a process may share.
  // `optimizer`: of this rank. InternalError: owners() does not fit.
  void attach(Context& ctx, ParameterStore& params, std::unique_ptr<Optimizer> optimizer);
  // Reduces the gradients of a unit. They are moved from `unit` to parts().
  void reduce(Context& ctx, std::span<Var> unit) final;
  // Collective. The squares of the gradients by parameter: see GradientMeasure.
  std::map<std::string, Tensor> squares(Context& ctx);
  // Updates the parts of this rank. The other ranks get them by publish().
  void update(Context& ctx, const GradientMeasure& measure, double lr, int64_t number);
  // Collective. Gives all ranks the values of a unit.
  void publish(Context& ctx, const std::vector<std::string>& unit);
  void after_step(Context& ctx) override;
  // The residuals of a codec with error feedback.
  void discard() override;
  void rescale(double factor) override;
  StateDict state() const override;
  void load(Context& ctx, const std::vector<StateDict>& ranks) override;
  // This rank's parts of parameters, with the sums of their gradients.
  const ParameterStore& parts() const;

  StateDict own_state() const;  // of this rank's optimizer
  // Collective. The state of the optimizer as one rank would have it that owns everything, on rank 0 in the memory of
  // the host; the other ranks get nothing. load_optimizer() takes the same on each rank; UserError as
  // Optimizer::load().
  StateDict gather_optimizer(Context& ctx) const;
  void load_optimizer(Context& ctx, const StateDict& state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx
