// Terms that a model adds to the training loss, each under a name: load balancing, activation regularisation, ...
//
// Like the loss itself, a term is a sum over the tokens (or sequences) of the micro-batch at hand, times the term's
// weight. The trainer divides both by the number of tokens or sequences of the whole step, so that micro-batches and
// ranks add up to the same gradient.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmx/autograd.h"
#include "lmx/context.h"

namespace lmx {

// The terms of one micro-batch.
class LMX_API LossTerms {
 public:
  explicit LossTerms(std::vector<std::string> names);  // LossTermModel::loss_terms()
  // For LossTermModel::forward_training(): adds `value` (1) to the term; several calls add up. UserError: a name that
  // the model does not declare, a value that is not one element.
  void add(Context& ctx, std::string_view name, const Var& value);
  const std::vector<std::string>& names() const { return names_; }
  std::vector<double> values() const;  // by name; 0 for a term that was not added to
  // loss + all terms: what backward() starts from. Returns `loss` itself if there are no terms.
  Var total(Context& ctx, const Var& loss) const;

 private:
  std::vector<std::string> names_;
  std::vector<Var> terms_;  // by name; undefined until something is added
};

}  // namespace lmx
