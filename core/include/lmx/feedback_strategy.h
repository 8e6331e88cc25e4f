// Compressors of gradients with error feedback: the base of strategies that send a part of a gradient, or a coarse
// version of it, and keep the rest for later steps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lmx/sum_strategy.h"

namespace lmx {

// Keys that all compressors share. A strategy gives them its own defaults.
struct LMX_API FeedbackConfig {
  bool feedback = true;  // false: what is not sent is lost
  double bucket_mb = 0;  // megabytes of dense f32 gradients that are compressed as one vector; 0: each separately
  int64_t min_size = 0;  // dense gradients with fewer elements are summed exactly
  double momentum = 0;   // not a field: a strategy that supports it lists it
  void fields(Fields& f);
};

// Dense gradients are compressed by exchange(); those with fewer than `min_size` elements are summed exactly, in
// buckets of 150 MB, and row-sparse ones exactly over the rows of any rank, as SumStrategy does without a codec. If
// result() is a direction, the signs of these sums are taken. With one rank, gradients are not exchanged, and not
// compressed unless result() is a direction.
//
// With feedback, a rank adds the residual of earlier steps to its gradient before it is compressed. If an update is
// skipped, the residual before that step is restored. A checkpoint of the same number of ranks continues bit-exactly;
// with another number each rank gets an equal part of the sum of all residuals (Reducer::load()).
//
// With a momentum m, each rank keeps a velocity u of each dense parameter, u = m u + gradient, which takes the place of
// its gradient, and it clears u where exchange() leaves 0 (Lin et al. 2018, momentum correction and momentum factor
// masking). The velocities are kept and restored as residuals are.
class LMX_API FeedbackStrategy : public SumStrategy {
 public:
  FeedbackStrategy(const FeedbackConfig& config, const SyncEnv& env);
  ~FeedbackStrategy() override;
  std::vector<std::vector<std::string>> units(const std::vector<ParameterSpec>& params) const override;
  void begin_step(Context& ctx, std::span<const Batch> share, StepPlan& plan) override;
  void reduce(Context& ctx, std::span<Var> unit) override;
  void after_step(Context& ctx) override;
  void discard() override;
  void rescale(double factor) override;
  StateDict state() const override;
  void load(Context& ctx, const std::vector<StateDict>& ranks) override;

 protected:
  // A parameter, or several that are compressed as one vector.
  struct Block {
    std::string name;
    Shape shape;       // of the parameter; (size) if there are several
    int64_t size = 0;  // number of elements
    int64_t step = 0;  // of the run
  };
  // Collective. v (size), f32: this rank's gradient plus its residual, zeros without a gradient. Returns the sum over
  // ranks of what they have sent, (size). With feedback it leaves in `v` what this rank has not sent: the next
  // residual. May run on a second thread while backward computes other parameters.
  virtual Tensor exchange(Context& ctx, const Block& block, Tensor v) = 0;
  // Whether a dense gradient is compressed; otherwise it is summed exactly. Default: if it is not small.
  virtual bool compresses(const ParameterSpec& p) const;
  bool feedback() const { return config_.feedback; }
  const std::string& group() const { return env().group; }  // of the ledger
  // A key for random numbers that all ranks share; another one for each block and step. Fold the rank into it for
  // numbers of this rank.
  RandomKey key(const Block& block) const;

 private:
  struct Impl;
  std::vector<Tensor> accelerate(Context& ctx, std::span<Var> unit);
  void reduce_exactly(Context& ctx, std::span<Var> unit);
  Tensor exchanged(Context& ctx, const Block& block, const Tensor& v);
  void reduce_block(Context& ctx, std::span<Var> unit, std::span<const Tensor> velocities);
  FeedbackConfig config_;
  int64_t step_ = 0;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmx
