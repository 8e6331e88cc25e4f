#include <algorithm>

#include "lmx/error.h"
#include "lmx/loss.h"
#include "nn/component.h"
#include "nn/losses.h"
#include "ops/common.h"
#include "ops/losses/output_layer.h"

namespace lmx {

Loss::~Loss() = default;

LossPlan Loss::plan() const {
  return {};
}
void Loss::check_planned(const std::string&) const {}

namespace {

auto find(const std::vector<ParameterSpec>& specs, const std::string& name) {
  return std::find_if(specs.begin(), specs.end(), [&](const ParameterSpec& s) { return s.name == name; });
}

// The parameter of the model that is also the output layer's weight.
ParameterSpec tied_weight(const std::string& name, const LossEnv& env, const std::string& where) {
  const auto found = find(env.model, name);
  if (found == env.model.end()) {
    std::vector<std::string> names;
    for (const ParameterSpec& s : env.model) names.push_back(s.name);
    throw UserError(str(where, "the model has no parameter '", name, "'", did_you_mean(name, names), "; it has ",
                        names.empty() ? "none" : config::join(names)));
  }
  const Shape needed{env.vocab_size, env.feature_size};
  if (found->shape == needed) return *found;
  const bool vectors = found->shape.rank() == 2 && found->shape[0] == env.vocab_size;
  throw UserError(str(where, name, " is ", found->shape, ", the output layer ", needed,
                      vectors ? str(": to be tied, the embedding's size, ", found->shape[1],
                                    ", must be that of the model's features, ", env.feature_size)
                              : ": only a table of the same shape can be tied"));
}

}  // namespace

void OutputConfig::fields(Fields& f) {
  f.field("bias", bias, "a bias for each word, starting at 0");
  f.group("init", init, "how the weight starts");
  f.field("tie", tie,
          "a parameter of the model that is the weight as well, such as embedding.weight; init is then the model's");
  f.choice("normalize", normalize, {"token", "sequence"}, "divisor of the summed loss");
}

OutputLoss::OutputLoss(const OutputConfig& config, const LossEnv& env, bool sparse, const std::string& where)
    : normalize_(config.normalize) {
  if (!env.tie.empty() && !config.tie.empty() && config.tie != env.tie)
    throw UserError(str(where, "'", config.tie, "', but the model shares '", env.tie, "' with the output layer"));
  const std::string& tie = config.tie.empty() ? env.tie : config.tie;
  if (tie.empty())
    specs_.push_back({"softmax.weight", {env.vocab_size, env.feature_size}, config.init, sparse});
  else
    specs_.push_back(tied_weight(tie, env, where));
  specs_[0].sparse = sparse;
  if (config.bias) specs_.push_back({"softmax.bias", {env.vocab_size}, {"zeros", 0}, sparse});
}

SoftmaxInputs OutputLoss::inputs(const ParameterStore& params, const Var& features, const Tensor& targets) const {
  return {features, params.at(weight_name()), bias(params), targets};
}

LossValue OutputLoss::value(Context& ctx, const Var& loss, const Var& nats) {
  return {loss, ops::converted(ctx, nats.value(), DType::f64)};
}

Tensor OutputLoss::evaluate(Context& ctx, const ParameterStore& params, const Tensor& features, const Tensor& targets,
                            const LogitsVisitor& visit) const {
  return full_softmax_nll(ctx, features, params.at(weight_name()).value(), bias_value(params), targets, visit);
}

Tensor OutputLoss::logits(Context& ctx, const ParameterStore& params, const Tensor& features) const {
  return ops::repeated_logits(ctx, features, params.at(weight_name()), bias_value(params));
}

std::vector<ParameterSpec> all_parameters(const std::vector<ParameterSpec>& model, const Loss& loss) {
  std::vector<ParameterSpec> all = model;
  for (ParameterSpec& spec : loss.parameters()) {
    spec.output = true;
    const auto shared = find(all, spec.name);
    if (shared == all.end()) {
      all.push_back(std::move(spec));
      continue;
    }
    ParameterSpec& tied = all[static_cast<size_t>(shared - all.begin())];
    tied.sparse &= spec.sparse;
    tied.output = true;
  }
  return all;
}

const std::vector<losses::Entry>& losses::entries() {
  static const std::vector<Entry> table{full_softmax(), sampled_softmax(), two_stage_softmax()};
  return table;
}
component::Described component::losses() {
  return describe(losses::entries());
}

LossTerms::LossTerms(std::vector<std::string> names) : names_(std::move(names)), terms_(names_.size()) {}

void LossTerms::add(Context& ctx, std::string_view name, const Var& value) {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) {
    throw UserError(str("[loss] the model adds a term '", name, "' that LossTermModel::loss_terms() does not name",
                        did_you_mean(std::string(name), names_)));
  }
  if (value.value().numel() != 1)
    throw UserError(str("[loss] the term '", name, "' ", value.shape(), ": one element expected"));
  Var& term = terms_[static_cast<size_t>(found - names_.begin())];
  const Var one = reshape(ctx, value, {1});
  term = term.defined() ? lmx::add(ctx, term, one) : one;
}

std::vector<double> LossTerms::values(const Context& ctx) const {
  std::vector<double> values;
  for (const Var& term : terms_) {
    values.push_back(!term.defined() ? 0.0 : ops::with_values("loss", term.value(), [&](auto zero) {
      return static_cast<double>(ctx.read<decltype(zero)>(term.value()).value());
    }));
  }
  return values;
}

Var LossTerms::total(Context& ctx, const Var& loss) const {
  Var sum = loss;
  for (const Var& term : terms_) {
    if (term.defined()) sum = lmx::add(ctx, sum, term);
  }
  return sum;
}

}  // namespace lmx
