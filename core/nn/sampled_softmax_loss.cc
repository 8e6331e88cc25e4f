// Proposal distributions of a sampled softmax over word ids k in [0, V):
//
//   uniform      1 / V
//   log_uniform  log((k + 2) / (k + 1)) / log(V + 1): near Zipf's law for ids by falling frequency
//   unigram      max(count_k, 1)^beta / sum; a word that never occurs must have a finite log probability
#include <algorithm>
#include <cmath>

#include "lmx/error.h"
#include "lmx/loss.h"
#include "nn/component.h"
#include "nn/losses.h"

namespace lmx {

CandidateSampler::~CandidateSampler() = default;

namespace {

class Uniform final : public CandidateSampler {
 public:
  explicit Uniform(int64_t v) : v_(v) {}
  int32_t draw(RandomKey key, uint64_t index) const override {
    return static_cast<int32_t>(key.below(index, static_cast<uint64_t>(v_)));
  }
  double probability(int32_t) const override { return 1.0 / static_cast<double>(v_); }

 private:
  int64_t v_;
};

// Inverse of P(id <= k) = log(k + 2) / log(V + 1).
class LogUniform final : public CandidateSampler {
 public:
  explicit LogUniform(int64_t v) : v_(v), log_range_(std::log(static_cast<double>(v) + 1)) {}
  int32_t draw(RandomKey key, uint64_t index) const override {
    const auto k = static_cast<int64_t>(std::exp(key.uniform(index) * log_range_)) - 1;
    return static_cast<int32_t>(std::clamp<int64_t>(k, 0, v_ - 1));  // rounding of exp at either end
  }
  double probability(int32_t id) const override { return std::log1p(1.0 / (static_cast<double>(id) + 1)) / log_range_; }

 private:
  int64_t v_;
  double log_range_;
};

// Walker's alias table: a sample selects a column, and then one of the two words in it.
class Unigram final : public CandidateSampler {
 public:
  Unigram(int64_t v, double beta, const Vocabulary* vocabulary) {
    if (!vocabulary) return;  // a dry run samples no candidates
    LMX_CHECK(vocabulary->size() == v, "a vocabulary of ", vocabulary->size(), " words for ", v);
    p_.resize(static_cast<size_t>(v));
    double sum = 0;
    for (int64_t k = 0; k < v; ++k) {
      const auto count = static_cast<double>(std::max<int64_t>(vocabulary->count(static_cast<int32_t>(k)), 1));
      sum += p_[static_cast<size_t>(k)] = std::pow(count, beta);
    }
    for (double& p : p_) p /= sum;
    build();
  }
  int32_t draw(RandomKey key, uint64_t index) const override {
    LMX_CHECK(!p_.empty(), "a unigram sampler without a vocabulary");
    const double u = key.uniform(index) * static_cast<double>(p_.size());
    const size_t column = std::min(static_cast<size_t>(u), p_.size() - 1);
    return u - static_cast<double>(column) < stay_[column] ? static_cast<int32_t>(column) : alias_[column];
  }
  double probability(int32_t id) const override {
    LMX_CHECK(!p_.empty(), "a unigram sampler without a vocabulary");
    return p_[static_cast<size_t>(id)];
  }

 private:
  void build() {
    const size_t n = p_.size();
    stay_.assign(n, 1.0);
    alias_.resize(n);
    std::vector<double> rest(n);
    std::vector<size_t> poor, rich;
    for (size_t k = 0; k < n; ++k) {
      alias_[k] = static_cast<int32_t>(k);
      rest[k] = p_[k] * static_cast<double>(n);
      (rest[k] < 1 ? poor : rich).push_back(k);
    }
    while (!poor.empty() && !rich.empty()) {
      const size_t p = poor.back(), r = rich.back();
      poor.pop_back();
      stay_[p] = rest[p];
      alias_[p] = static_cast<int32_t>(r);
      rest[r] -= 1 - rest[p];
      if (rest[r] < 1) {
        rich.pop_back();
        poor.push_back(r);
      }
    }
  }

  std::vector<double> p_, stay_;
  std::vector<int32_t> alias_;
};

}  // namespace

std::unique_ptr<CandidateSampler> make_sampler(const std::string& proposal, int64_t vocab_size, double beta,
                                               const Vocabulary* vocabulary) {
  if (vocab_size < 1) throw UserError(str("[sampler] a vocabulary of ", vocab_size, " words"));
  if (proposal == "uniform") return std::make_unique<Uniform>(vocab_size);
  if (proposal == "log_uniform") return std::make_unique<LogUniform>(vocab_size);
  if (proposal == "unigram") return std::make_unique<Unigram>(vocab_size, beta, vocabulary);
  const std::vector<std::string> known{"uniform", "log_uniform", "unigram"};
  throw UserError(str("[sampler] unknown proposal '", proposal, "'", did_you_mean(proposal, known)));
}

}  // namespace lmx

namespace lmx::losses {

// Sampled softmax. All targets of a step share S candidates, sampled with replacement; the expected count of a
// candidate is E_k = S P(k).

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
