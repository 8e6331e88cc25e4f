// Sampled softmax. All targets of a step share S candidates, sampled with replacement; the expected count of a
// candidate is E_k = S P(k).
#include <algorithm>
#include <cmath>

#include "nn/component.h"
#include "nn/losses.h"

namespace lmx::losses {
namespace {

struct SampledSoftmaxConfig : OutputConfig {
  int64_t samples = 1024;
  std::string proposal = "log_uniform";
  double beta = 0.75;
  bool logq = true;
  bool remove_accidental_hits = true;

  void fields(Fields& f) {
    f.field("samples", samples, "candidates of a step on a rank, drawn with replacement; targets are always added",
            {1, 1 << 18});
    f.choice("proposal", proposal, {"uniform", "log_uniform", "unigram"},
             "distribution of the candidates over word ids");
    f.field("beta", beta, "unigram: the power of a word's count", kNonNegative);
    f.field("logq", logq, "subtract the log of expected counts from the logits");
    f.field("remove_accidental_hits", remove_accidental_hits, "leave a candidate equal to the target out of its sum");
    OutputConfig::fields(f);
  }
  static SampledSoftmaxConfig read(const Node& n, const std::string& path) {
    return read_config<SampledSoftmaxConfig>(n, path);
  }
};

class SampledSoftmax final : public OutputLoss {
 public:
  SampledSoftmax(SampledSoftmaxConfig config, const LossEnv& env, const std::string& where)
      : OutputLoss(config, env, true, where),
        config_(std::move(config)),
        env_(env),
        sampler_(make_sampler(config_.proposal, env.vocab_size, config_.beta, env.vocabulary)) {}

  bool draws_candidates() const override { return true; }
  LossValue forward(Context& ctx, const ParameterStore& params, const Var& features, const Tensor& targets,
                    const StepPlan& plan) const override {
    const Var loss = sampled_softmax_loss(ctx, inputs(params, features, targets), draw(targets, plan.sampler_key));
    return value(ctx, loss, loss);
  }
  LossPlan plan() const override { return {.samples = std::min(config_.samples, env_.vocab_size)}; }

 private:
  Candidates draw(const Tensor& targets, RandomKey key) const {
    Candidates c;
    c.logq = config_.logq;
    c.remove_accidental_hits = config_.remove_accidental_hits;
    c.ids.resize(static_cast<size_t>(config_.samples));
    for (size_t i = 0; i < c.ids.size(); ++i) c.ids[i] = sampler_->draw(key, i);
    if (!c.logq) return c;
    for (const int32_t id : c.ids) c.log_expected.push_back(static_cast<float>(log_expected(id)));
    for (const int32_t id : targets.values<int32_t>()) {
      // The op reports a target that is out of range; the sampler must not fail earlier.
      const bool known = id >= 0 && id < env_.vocab_size;
      c.target_log_expected.push_back(known ? static_cast<float>(log_expected_target(id)) : 0.0f);
    }
    return c;
  }

  double log_expected(int32_t id) const {
    return std::log(static_cast<double>(config_.samples) * sampler_->probability(id));
  }
  // Without accidental hits a target is in its sum once, not S P times. Its expected count is therefore the probability
  // that it is sampled at all, 1 - (1 - P)^S. With S P, words with an expected count above 1 would get far too high
  // probabilities.
  double log_expected_target(int32_t id) const {
    if (!config_.remove_accidental_hits) return log_expected(id);
    const double p = sampler_->probability(id);
    return p < 1 ? std::log(-std::expm1(static_cast<double>(config_.samples) * std::log1p(-p))) : 0.0;
  }

  SampledSoftmaxConfig config_;
  LossEnv env_;
  std::unique_ptr<CandidateSampler> sampler_;
};

std::unique_ptr<Loss> make_sampled_softmax(const Node& config, const std::string& path, const LossEnv& env) {
  return std::make_unique<SampledSoftmax>(SampledSoftmaxConfig::read(config, path), env,
                                          place_of_key(config, path, "tie"));
}

}  // namespace

Entry sampled_softmax() {
  return component::entry<SampledSoftmaxConfig, LossFactory>("sampled_softmax", make_sampled_softmax);
}

}  // namespace lmx::losses
