// The sum of gradients over ranks, as most sync plugins make it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "lmx/sync.h"

namespace lmx {

struct SumConfig {
  CodecConfig codec;
  double bucket_mb = 0;           // megabytes, as they travel, of dense gradients in one message; 0: each on its own
  std::string gather = "unique";  // indices that travel: unique, or raw: with repetitions, as backward left them
};

// Dense gradients are summed through the codec, in buckets. Row-sparse ones in the seven steps of Patwary 2018, section
// III-A: 1, 2 rows of equal index are summed on their rank; 3 indices are gathered; 4 their union, ascending; 5 own
// rows are spread over it, zero elsewhere; 6 that block is summed through the codec; 7 its rows are the gradient. With
// one_bit step 5 is made where rows are summed: a rank encodes its own rows alone. A row that sums to zero stays. On
// one rank gradients stay as they are.
class LMX_API SumStrategy : public SyncStrategy {
 public:
  SumStrategy(SumConfig config, SyncEnv env);
  // Dense parameters in buckets, each closed when it has reached its size; row-sparse ones alone.
  std::vector<std::vector<std::string>> units(const std::vector<ParameterSpec>& params) const override;
  void reduce(Context& ctx, std::span<Var> unit) override;
  void after_step(Context&) override { reducer_.commit(); }
  void discard() override { reducer_.discard(); }
  void rescale(double factor) override { reducer_.rescale(factor); }
  StateDict state() const override;
  void load(Context& ctx, const std::vector<StateDict>& ranks) override;
  int64_t expected_bytes(const Traffic& traffic) const override;
  std::map<std::string, CodecHealth> take_health() override;
  int64_t pair_bytes() const override;
  std::vector<std::string> warnings(bool loss_scaled) const override;

 protected:
  virtual void reduce_table(Context& ctx, Var& param);
  virtual int64_t table_bytes(const Traffic& traffic, const Traffic::Sparse& table) const;
  const SyncEnv& env() const { return env_; }
  Reducer& reducer() { return reducer_; }
  const Reducer& reducer() const { return reducer_; }

 private:
  void reduce_dense(Context& ctx, std::span<Var> params);
  SumConfig config_;
  SyncEnv env_;
  std::set<std::string> tables_;  // parameters with row-sparse gradients
  Reducer reducer_;
};

// Bytes that a rank sends to tell the others `indices` rows: see gather_indices().
inline int64_t index_bytes(const Traffic& traffic, const std::vector<int64_t>& indices) {
  return (traffic.ranks - 1) * (8 + 4 * indices[static_cast<size_t>(traffic.rank)]);
}

}  // namespace lmx
