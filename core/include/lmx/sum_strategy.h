// The sum of gradients over ranks, the base of most sync plugins.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "lmx/sync.h"

namespace lmx {

struct SumConfig {
  CodecConfig codec;
  double bucket_mb = 0;           // megabytes, encoded, of dense gradients in one message; 0: each gradient separately
  std::string gather = "unique";  // gathered indices: unique, or raw: with repetitions, as backward produced them
  int levels = 1;                 // 2: sums are made inside nodes, then between nodes (Reducer)
};

// Dense gradients are encoded and summed in buckets. Row-sparse gradients are reduced in the seven steps of Patwary
// 2018, section III-A. Steps 1 and 2: each rank adds up its rows of equal index. 3: the indices are gathered. 4: their
// union is formed, ascending. 5: each rank spreads its rows over the union, with zeros elsewhere. 6: that block is
// encoded and summed. 7: its rows are the gradient. With one_bit, a rank encodes its own rows only, and the rank that
// sums them does step 5. A row with the sum zero is kept. With one rank, gradients are not exchanged.
class LMX_API SumStrategy : public SyncStrategy {
 public:
  SumStrategy(SumConfig config, SyncEnv env);
  // Dense parameters in buckets; a bucket is closed when it reaches its size. Row-sparse parameters form units of their
  // own.
  std::vector<std::vector<std::string>> units(const std::vector<ParameterSpec>& params) const override;
  void reduce(Context& ctx, std::span<Var> unit) override;
  void after_step(Context& ctx) override;
  void discard() override;
  void rescale(double factor) override { reducer_.rescale(factor); }
  StateDict state() const override;
  void load(Context& ctx, const std::vector<StateDict>& ranks) override;
  StateDict common_state() const override;
  void load_common(Context& ctx, const StateDict& state) override;
  std::map<std::string, CodecHealth> take_health() override;
  std::vector<std::string> warnings(bool loss_scaled) const override;
  std::string describe(int ranks) const override;

 protected:
  virtual void reduce_table(Context& ctx, Var& param);
  // Sums dense gradients in one message.
  static void reduce_dense(Context& ctx, std::span<Var> params, Reducer& reducer);
  // Tensors that are equal on all ranks and depend on earlier gradients, such as moments, by name. Each rank assigns
  // new ones in a step, and writes to none: if the update of the step is skipped, those before it are restored.
  // Checkpoints contain them.
  StateDict& common() { return common_; }
  // Number of updates of this rule that were made. Checkpoints contain it if they contain common().
  int64_t updates() const { return updates_; }
  // Divides `params` as units() does, in buckets of this size.
  std::vector<std::vector<std::string>> buckets(const std::vector<ParameterSpec>& params, double bucket_mb) const;
  const SyncEnv& env() const { return env_; }
  bool encodes() const { return config_.codec.kind != "none"; }
  Reducer& reducer() { return reducer_; }
  const Reducer& reducer() const { return reducer_; }

 private:
  SumConfig config_;
  SyncEnv env_;
  std::set<std::string> tables_;  // parameters with row-sparse gradients
  Reducer reducer_;
  StateDict common_, committed_;  // `committed_`: of the updates that were made
  int64_t updates_ = 0;
  bool discarded_ = false;
};

}  // namespace lmx
