// The losses that a recipe can name, and their common base class.
#pragma once

#include "lmx/loss.h"
#include "nn/component.h"

namespace lmx::losses {

// Fields of the output layer, equal in every loss.
struct OutputConfig {
  bool bias = true;
  Init init;
  std::string normalize = "token";
  std::string tie;
  void fields(Fields& f) {
    f.field("bias", bias, "a bias for each word, starting at 0");
    f.group("init", init, "how the weight starts");
    f.field("tie", tie,
            "a parameter of the model that is the weight as well, such as embedding.weight; init is then the model's");
    f.choice("normalize", normalize, {"token", "sequence"}, "divisor of the summed loss");
  }
};

// A linear output layer over all words.
class OutputLoss : public Loss {
 public:
  std::vector<ParameterSpec> parameters() const override { return specs_; }
  Tensor evaluate(Context& ctx, const ParameterStore& params, const Tensor& features,
                  const Tensor& targets) const override;
  Tensor logits(Context& ctx, const ParameterStore& params, const Tensor& features) const override;
  const std::string& normalize() const override { return normalize_; }

 protected:
  // `sparse`: whether the weight's gradient is row-sparse. `where`: the config's place, for messages. UserError: a tie
  // to a parameter that the model does not have or that has another shape.
  OutputLoss(const OutputConfig& config, const LossEnv& env, bool sparse, const std::string& where);
  const std::string& weight_name() const { return specs_[0].name; }
  // The operands of a loss op for `targets` of equal weight.
  SoftmaxInputs inputs(const ParameterStore& params, const Var& features, const Tensor& targets) const;
  // The value of a loss that is exactly the negative log-likelihood.
  static LossValue whole(Context& ctx, const Var& loss);

 private:
  Var bias(const ParameterStore& params) const { return specs_.size() > 1 ? params.at(specs_[1].name) : Var(); }
  Tensor bias_value(const ParameterStore& params) const { return specs_.size() > 1 ? bias(params).value() : Tensor(); }
  std::vector<ParameterSpec> specs_;  // the weight, then the bias if there is one
  std::string normalize_;
};

// The place of `key` in a loss's config, for the beginning of a message.
std::string place_of(const Node& config, const std::string& path, const char* key);

using Make = std::unique_ptr<Loss> (*)(const Node& config, const std::string& path, const LossEnv& env);
using Entry = component::Entry<Make>;
Entry full_softmax();
Entry sampled_softmax();
Entry two_stage_softmax();

}  // namespace lmx::losses
