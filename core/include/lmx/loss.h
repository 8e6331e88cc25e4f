// Losses: the output layer and the likelihood of the targets (`loss:` of a recipe), and terms that models add to them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/config.h"
#include "lmx/context.h"
#include "lmx/data.h"
#include "lmx/ops.h"
#include "lmx/parameters.h"
#include "lmx/random.h"

namespace lmx {

// Decisions of the gradient-sync strategies for a step, made before its forward pass; losses and models read them.
struct StepPlan {
  int64_t step = 0;
  RandomKey sampler_key = {};  // for the candidates of a sampled softmax: ranks with equal keys sample equal candidates
  // Tables of which only some rows get gradients in this step on this rank (Xiao 2017, section 3.1: V_all): those rows,
  // ascending. In a table that is absent, all rows get gradients.
  std::map<std::string, std::vector<int32_t>> rows = {};
};

struct LossEnv {
  int64_t vocab_size = 0;
  int64_t feature_size = 0;
  const Vocabulary* vocabulary = nullptr;  // counts for the unigram sampler; null in a dry run
  std::vector<ParameterSpec> model = {};   // the model's parameters; `tie` can name one as the output layer's
  std::string tie = "";                    // the parameter that the model itself ties (Model::output_table)
};

// The words of the output layer that a training step computes, for estimates.
struct LossPlan {
  int64_t samples = 0;  // words beside the targets that the softmax of a rank covers; 0: it covers all words
};

class LMX_API Loss {
 public:
  using Factory = std::unique_ptr<Loss> (*)(const Node& config, const std::string& path, const LossEnv& env);

  virtual ~Loss();
  // "softmax.weight" (V, D), "softmax.bias" (V); a tied weight has the name of the model's parameter.
  virtual std::vector<ParameterSpec> parameters() const = 0;
  // Loss of the targets i32 (n), on the host, from features (n, D). `plan`: this step's candidates and rows.
  virtual LossValue forward(Context& ctx, const ParameterStore& params, const Var& features, const Tensor& targets,
                            const StepPlan& plan) const = 0;
  // Always the full softmax, whichever loss was used in training: f32 (n) nats. `visit` gets the logits of all rows,
  // those of logits(), in blocks and in order, so that metrics need no second product; it may be empty.
  virtual Tensor evaluate(Context& ctx, const ParameterStore& params, const Tensor& features, const Tensor& targets,
                          const LogitsVisitor& visit = {}) const = 0;
  virtual Tensor logits(Context& ctx, const ParameterStore& params, const Tensor& features) const = 0;
  virtual LossPlan plan() const;                           // default: all words
  virtual const std::string& normalize() const = 0;        // "token" or "sequence": the divisor of the sum
  virtual bool draws_candidates() const { return false; }  // reads StepPlan::sampler_key
  // Called if a rule of `sync` (its path is `rule`) selects the rows of the weight (StepPlan::rows). UserError: the
  // loss has its own settings for that selection, which would have no effect.
  virtual void check_planned(const std::string& rule) const;
};

// The parameters of a model and its loss, the model's first. A parameter that both declare is shared: its gradient is
// the sum of both uses, and is row-sparse only if both are. The loss's parameters are marked as the output layer's.
LMX_API std::vector<ParameterSpec> all_parameters(const std::vector<ParameterSpec>& model, const Loss& loss);

// Fields of a linear output layer over all words, equal in every loss of lmx.
struct LMX_API OutputConfig {
  bool bias = true;
  Init init;
  std::string normalize = "token";
  std::string tie;
  void fields(Fields& f);
};

// A loss with a linear output layer over all words, which validation and generation use. A class that derives from it
// defines forward().
class LMX_API OutputLoss : public Loss {
 public:
  std::vector<ParameterSpec> parameters() const override { return specs_; }
  Tensor evaluate(Context& ctx, const ParameterStore& params, const Tensor& features, const Tensor& targets,
                  const LogitsVisitor& visit) const override;
  Tensor logits(Context& ctx, const ParameterStore& params, const Tensor& features) const override;
  const std::string& normalize() const override { return normalize_; }

 protected:
  // `sparse`: whether the gradients of weight and bias are row-sparse. `where`: the place of `tie` in the recipe, with
  // which a message begins (place_of_key()). UserError: `tie` names a parameter that the model does not have or that
  // has another shape.
  OutputLoss(const OutputConfig& config, const LossEnv& env, bool sparse, const std::string& where);
  const std::string& weight_name() const { return specs_[0].name; }
  // The features, weight and bias of the output layer for `targets` of equal weight: the operands of a loss op, or of
  // linear(ctx, in.h, in.w, in.b), which computes the logits (n, V).
  SoftmaxInputs inputs(const ParameterStore& params, const Var& features, const Tensor& targets) const;
  // The result of forward(). `loss` (1): where backward starts. `nats` (1): the summed negative log-likelihood.
  static LossValue value(Context& ctx, const Var& loss, const Var& nats);

 private:
  Var bias(const ParameterStore& params) const { return specs_.size() > 1 ? params.at(specs_[1].name) : Var(); }
  Tensor bias_value(const ParameterStore& params) const { return specs_.size() > 1 ? bias(params).value() : Tensor(); }
  std::vector<ParameterSpec> specs_;  // the weight, then the bias if there is one
  std::string normalize_;
};

using LossFactory = Loss::Factory;

// From `loss:` by its key `name`: full_softmax, sampled_softmax, two_stage_softmax, or a plugin. Errors of a plugin
// name it.
LMX_API std::unique_ptr<Loss> make_loss(const Node& config, const std::string& path, const LossEnv& env);
LMX_API Node full_loss_config(const Node& config, const std::string& path);

// Samples candidates for a sampled softmax: uniform, log_uniform (P(k) = log((k+2)/(k+1)) / log(V+1)), unigram
// (count^beta).
class LMX_API CandidateSampler {
 public:
  virtual ~CandidateSampler();
  virtual int32_t draw(RandomKey key, uint64_t index) const = 0;
  virtual double probability(int32_t id) const = 0;
};
LMX_API std::unique_ptr<CandidateSampler> make_sampler(const std::string& proposal, int64_t vocab_size, double beta,
                                                       const Vocabulary* vocabulary);

// Named terms of one micro-batch that a model adds to the training loss: load balancing, activation regularisation, ...
//
// Like the loss itself, a term is a sum over the tokens (or sequences) of one micro-batch, times the term's weight. The
// trainer divides both by the number of tokens or sequences of the whole step, so that micro-batches and ranks add up
// to the same gradient.
class LMX_API LossTerms {
 public:
  explicit LossTerms(std::vector<std::string> names);  // LossTermModel::loss_terms()
  // For LossTermModel::forward_training(): adds `value` (1) to the term; several calls add up. UserError: a name that
  // the model does not declare, or a value that is not one element.
  void add(Context& ctx, std::string_view name, const Var& value);
  const std::vector<std::string>& names() const { return names_; }
  // In the order of names(); 0 for a term without a value. Waits for the device.
  std::vector<double> values(const Context& ctx) const;
  // loss + all terms, from which backward() starts. Returns `loss` itself if there are no terms.
  Var total(Context& ctx, const Var& loss) const;

 private:
  std::vector<std::string> names_;
  std::vector<Var> terms_;  // in the order of names_; undefined until a value is added
};

}  // namespace lmx
