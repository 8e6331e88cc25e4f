// Clipping by global norm (Pascanu et al. 2013): if the common norm of a group's gradients is above max_norm, they are
// scaled by max_norm / norm.
#include <cmath>

#include "config/messages.h"
#include "lmx/error.h"
#include "lmx/optim.h"
#include "ops/common.h"
#include "optim/gradient_squares.h"
#include "optim/measure.h"

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
                      config::describe_value(node)));
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

// Those of type T among the tensors; sum k belongs to tensor k.
template <class T>
void add_squares(Context& ctx, const std::vector<Tensor>& tensors, double* sum) {
  std::vector<optim::SquaredTensor<T>> all;
  int64_t parts = 0;
  for (const Tensor& t : tensors) {
    if (t.dtype() == dtype_of<T>) {
      all.push_back({t.data<T>(), t.numel(), parts, sum});
      parts += (t.numel() + optim::SquaredSums<T>::kPart - 1) / optim::SquaredSums<T>::kPart;
    }
    ++sum;
  }
  if (all.empty()) return;
  const auto list = ctx.upload(std::move(all));
  run_kernel(ctx, optim::SquaredSums<T>{list.data(), list.size(), parts});
}

}  // namespace

std::map<std::string, double> optim::gradient_squares(Context& ctx, const ParameterStore& params) {
  std::map<std::string, double> squares;
  std::vector<Tensor> tensors;
  for (const std::string& name : params.names())
    if (!params.at(name).grad().empty()) squares[name] = 0;
  if (squares.empty()) return squares;
  for (const auto& [name, none] : squares) tensors.push_back(values(params.at(name).grad(), name));
  Tensor sums = ctx.empty({static_cast<int64_t>(squares.size())}, DType::f64, MemClass::other);
  add_squares<float>(ctx, tensors, sums.data<double>());
  add_squares<double>(ctx, tensors, sums.data<double>());
  const Reading<double> reading = ctx.read<double>(sums);
  auto next = reading.get().begin();
  for (auto& [name, sum] : squares) sum = *next++;
  return squares;
}

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

ClipResult measure_gradients(Context& ctx, const ParameterStore& params, const std::vector<ClipRule>& rules,
                             double unscale) {
  std::vector<double> sums(rules.size() + 1);
  std::map<std::string, size_t> group;  // the rule of each parameter that has a gradient; rules.size(): none
  for (const auto& [name, squares] : optim::gradient_squares(ctx, params)) {
    group[name] = rule_of(name, rules);
    sums[group[name]] += squares;
  }
  ClipResult result;
  double total = 0;
  for (const double s : sums) total += s;
  result.unscale = unscale;
  result.norm = std::sqrt(total) * unscale;
  result.finite = std::isfinite(total);
  if (!result.finite) return result;
  for (const auto& [name, r] : group) {
    if (r == rules.size() || rules[r].norm <= 0) continue;
    const double norm = std::sqrt(sums[r]) * unscale;
    if (norm > rules[r].norm) result.factors[name] = rules[r].norm / norm;
  }
  return result;
}

ClipResult clip_gradients(Context& ctx, ParameterStore& params, const std::vector<ClipRule>& rules) {
  ClipResult result = measure_gradients(ctx, params, rules);
  for (const auto& [name, factor] : result.factors) {
    Tensor t = values(params.at(name).grad(), name);
    ops::scale_in_place(ctx, t, factor);
  }
  return result;
}

}  // namespace lmx
