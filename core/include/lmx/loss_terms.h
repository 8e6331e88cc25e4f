// Named terms that a model adds to the training loss: load balancing, activation regularisation, ...
//
// Like the loss itself, a term is a sum over the tokens (or sequences) of one micro-batch, times the term's weight. The
// trainer divides both by the number of tokens or sequences of the whole step, so that micro-batches and ranks add up
// to the same gradient.
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
