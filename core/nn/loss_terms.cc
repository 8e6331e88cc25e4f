#include "lmx/loss.h"

#include "lmx/error.h"
#include "ops/common.h"

namespace lmx {

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
