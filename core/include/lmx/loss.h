// Losses: the output layer and the likelihood of the targets (`loss:` of a recipe).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lmx/data.h"
#include "lmx/ops.h"
#include "lmx/parameters.h"
#include "lmx/random.h"
#include "lmx/step_plan.h"

namespace lmx {

struct LossEnv {
  int64_t vocab_size = 0;
  int64_t feature_size = 0;
  const Vocabulary* vocabulary = nullptr;  // counts for the unigram sampler; null in a dry run
};

class LMX_API Loss {
 public:
  virtual ~Loss();
  virtual std::vector<ParameterSpec> parameters() const = 0;  // "softmax.weight" (V, D), "softmax.bias" (V)
  // Summed nats (1) over targets i32 (n) from features (n, D). `plan`: this step's candidates and rows.
  virtual Var forward(Context& ctx, ParameterStore& params, const Var& features, const Tensor& targets,
                      const StepPlan& plan) const = 0;
  // Under the full softmax, whatever training used: f32 (n) nats.
  virtual Tensor evaluate(Context& ctx, const ParameterStore& params, const Tensor& features,
                          const Tensor& targets) const;
  virtual Tensor logits(Context& ctx, const ParameterStore& params, const Tensor& features) const;
  virtual int64_t macs_per_token(int64_t batch_tokens) const = 0;
  virtual const std::string& normalize() const = 0;  // "token" or "sequence": what the sum is divided by
};

// From `loss:` by its key `name`: full_softmax, sampled_softmax.
LMX_API std::unique_ptr<Loss> make_loss(const Node& config, const std::string& path, const LossEnv& env);
LMX_API Node full_loss_config(const Node& config, const std::string& path);

// Draws candidates for a sampled softmax: uniform, log_uniform (P(k) = log((k+2)/(k+1)) / log(V+1)), unigram
// (count^beta).
class LMX_API CandidateSampler {
 public:
  virtual ~CandidateSampler();
  virtual int32_t draw(RandomKey key, uint64_t index) const = 0;
  virtual double probability(int32_t id) const = 0;
};
LMX_API std::unique_ptr<CandidateSampler> make_sampler(const std::string& proposal, int64_t vocab_size, double beta,
                                                       const Vocabulary* vocabulary);

}  // namespace lmx
