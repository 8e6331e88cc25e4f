// Clipping by global norm (Pascanu et al. 2013): if the common norm of a group's gradients is above max_norm, they are
// scaled by max_norm / norm.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/optim.h"
#include "ops/common.h"
#include "optim/squares.h"

namespace lmx {
namespace {

struct RuleConfig {
  std::string params;
  double norm = 0;
  void fields(Fields& f) {
    f.required("params", params,
               "pattern that is searched for in parameter names (^lstm: names that begin so); the first rule that "
               "matches counts");
    f.field("norm", norm, "largest norm of the group's gradients; 0: not clipped", kNonNegative);
  }
};

double number(const Node& node, const std::string& path) {
  const auto value = node.quoted ? std::nullopt : parse_double(node.text);
  if (value && *value >= 0 && std::isfinite(*value)) return *value;
  throw UserError(str(config::at(node.mark, path), "expected a norm >= 0 or a list of {params, norm}, got ",
                      config::describe_value(node), node.quoted ? ", a text; remove its quotes" : ""));
}

const Tensor& values(const Gradient& g, const std::string& name) {
  if (!g.sparse()) return g.dense;
  LMX_CHECK(g.pieces.size() == 1 && g.pieces[0].unique, "the gradient of ", name, " is not coalesced");
  return g.pieces[0].rows;
}

// The index of the first rule that matches; rules.size() if none does.
size_t rule_of(const std::string& name, const std::vector<ClipRule>& rules) {
  size_t r = 0;
  while (r < rules.size() && !rules[r].params.matches(name)) ++r;
  return r;
}

// A gradient of a parameter, or the squares of its blocks, and the index of the parameter's rule: rules.size() if none
// matches.
struct Measured {
  std::string name;
  size_t rule;
  Tensor values;
  bool summed;
};

}  // namespace

std::vector<ClipRule> read_clip(const Node& clip, const std::string& path) {
  if (clip.kind == Node::Kind::null) return {};
  if (clip.kind != Node::Kind::list) return {{ParamPattern(".*", config::at(clip.mark, path)), number(clip, path)}};
  std::vector<ClipRule> rules;
  for (size_t i = 0; i < clip.items.size(); ++i) {
    const std::string at = str(path, '.', i);
    const auto rule = read_config<RuleConfig>(clip.items[i], at);
    const Node* params = clip.items[i].find("params");
    rules.push_back({ParamPattern(rule.params, config::at(params->mark, at + ".params")), rule.norm});
  }
  return rules;
}

void check_clip(const std::vector<ClipRule>& rules, const std::vector<std::string>& names) {
  std::vector<bool> used(rules.size() + 1);
  for (const std::string& name : names) used[rule_of(name, rules)] = true;
  for (size_t r = 0; r < rules.size(); ++r) {
    if (used[r]) continue;
    const std::vector<std::string> matched = rules[r].params.select(names);  // throws if no parameter matches
    const ClipRule& taker = rules[rule_of(matched[0], rules)];
    throw UserError(str(rules[r].params.place(), "'", rules[r].params.text(), "' matches no parameter that an earlier ",
                        "rule left: '", taker.params.text(), "' took ", matched[0],
                        matched.size() > 1 ? " and others" : "", "; the rule for fewer parameters goes first"));
  }
}

GradientMeasure::GradientMeasure(Context& ctx, const ParameterStore& params, const std::vector<ClipRule>& rules,
                                 double unscale, const std::map<std::string, Tensor>& divided)
    : unscale_(unscale) {
  std::vector<Measured> measured;
  for (const auto& [name, squares] : divided) measured.push_back({name, rule_of(name, rules), squares, true});
  for (const std::string& name : params.names())
    if (const Gradient& grad = params.at(name).grad(); !grad.empty())
      measured.push_back({name, rule_of(name, rules), values(grad, name), false});
  if (measured.empty()) return;
  std::sort(measured.begin(), measured.end(), [](const Measured& a, const Measured& b) {  // the order of all additions
    return std::tie(a.rule, a.name) < std::tie(b.rule, b.name);
  });
  const auto groups = static_cast<int64_t>(rules.size()) + 1;  // the last: gradients that belong to no rule
  total_ = groups;
  optim::SquaredList list;
  for (const Measured& m : measured) {
    const auto rule = static_cast<int64_t>(m.rule);
    const bool fresh = places_.emplace(m.name, Place{rule, total_ + 1 + list.size()}).second;
    LMX_CHECK(fresh, "two gradients of ", m.name);
    list.add(m.values, m.summed, static_cast<int32_t>(rule), m.rule < rules.size() ? rules[m.rule].norm : 0);
  }
  const Uploaded<optim::SquaredTensor> tensors = list.upload(ctx);
  factors_ = ctx.empty({total_ + 1 + list.size()}, DType::f64, MemClass::other);
  Tensor sums = factors_.slice(total_ + 1, factors_.numel());
  list.sum(ctx, list.block_sums(ctx), sums);
  run_kernel(ctx, optim::ClipFactors<double>{tensors.data(), sums.data<double>(), tensors.size(), groups, unscale,
                                             factors_.data<double>()});
  reading_ = ctx.read<double>(factors_);
}

GradScale GradientMeasure::scale(const std::string& param) const {
  const int64_t rule = places_.at(param).rule;
  return {unscale_, factors_.slice(rule, rule + 1)};
}

ClipResult GradientMeasure::result() const {
  ClipResult result;
  result.unscale = unscale_;
  if (places_.empty()) return result;
  const std::span<const double> factors = reading_.get();
  const auto at = [&](int64_t i) { return factors[static_cast<size_t>(i)]; };
  result.norm = std::sqrt(at(total_)) * unscale_;
  result.finite = std::isfinite(at(total_));
  for (const auto& [name, place] : places_) {
    if (!std::isfinite(at(place.sum))) result.not_finite.push_back(name);
    if (result.finite && at(place.rule) != 1) result.factors[name] = at(place.rule);
  }
  return result;
}

ClipResult measure_gradients(Context& ctx, const ParameterStore& params, const std::vector<ClipRule>& rules,
                             double unscale) {
  return GradientMeasure(ctx, params, rules, unscale).result();
}

}  // namespace lmx
