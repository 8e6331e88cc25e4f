// `stop.when`: ends a run as soon as a validation reaches a limit.
#pragma once

#include <string>

#include "lmx/config.h"

namespace lmx::train {

// "valid.nll_bit <= 2.11": one of valid.nll_nat, valid.nll_bit, valid.bpc, valid.ppl; <=, <, >= or >; a number.
class StopRule {
 public:
  // "": never. A UserError at `mark` names the error and a valid alternative.
  explicit StopRule(const std::string& text, const Mark& mark = {});
  // Whether a validation with this mean negative log-likelihood in nats fulfils the condition.
  bool met(double nll_nat) const;
  std::string describe(double nll_nat) const;                    // "valid.nll_bit 2.1034 <= 2.11"
  bool of_characters() const { return metric_ == "valid.bpc"; }  // not defined for words

 private:
  double value(double nll_nat) const;
  std::string text_, metric_, comparison_;
  double limit_ = 0;
};

}  // namespace lmx::train
