#include "recipe/stop_rule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <sstream>
#include <vector>

#include "config/messages.h"
#include "lmx/error.h"

namespace lmx {
namespace {

const std::vector<std::string> kMetrics{"valid.nll_nat", "valid.nll_bit", "valid.bpc", "valid.bpb", "valid.ppl"},
    kComparisons{"<=", "<", ">=", ">"};

bool one_of(const std::string& text, const std::vector<std::string>& all) {
  return std::find(all.begin(), all.end(), text) != all.end();
}

}  // namespace

StopRule::StopRule(const std::string& text, const Mark& mark) : text_(text) {
  if (text.empty()) return;
  const std::string where = config::at(mark, "stop.when");
  std::istringstream words(text);
  std::string limit, rest;
  words >> metric_ >> comparison_ >> limit;
  if (limit.empty() || (words >> rest))
    throw UserError(str(where, "expected a metric, a comparison and a number, such as \"valid.nll_bit <= 2.11\", got '",
                        text, "'"));
  if (!one_of(metric_, kMetrics))
    throw UserError(str(where, "there is no metric '", metric_, "'", did_you_mean(metric_, kMetrics), "; there are ",
                        config::join(kMetrics)));
  if (!one_of(comparison_, kComparisons))
    throw UserError(str(where, "'", comparison_, "' is no comparison; there are ", config::join(kComparisons)));
  const std::optional<double> number = parse_double(limit);
  if (!number || !std::isfinite(*number)) throw UserError(str(where, "'", limit, "' is no number"));
  limit_ = *number;
}

double StopRule::value(const Result& result) const {
  if (of_bytes()) return result.bpb;
  const double nll_nat = result.nll_nat;
  if (metric_ == "valid.ppl") return std::exp(nll_nat);
  return metric_ == "valid.nll_nat" ? nll_nat : nll_nat / std::numbers::ln2;
}

bool StopRule::met(const Result& result) const {
  if (text_.empty()) return false;
  const double x = value(result);
  if (comparison_ == "<=") return x <= limit_;
  if (comparison_ == "<") return x < limit_;
  return comparison_ == ">=" ? x >= limit_ : x > limit_;
}

std::string StopRule::describe(const Result& result) const {
  return str(metric_, " ", value(result), " ", comparison_, " ", limit_);
}

}  // namespace lmx
