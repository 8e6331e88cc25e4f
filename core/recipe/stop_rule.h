// `stop.when`: an end as soon as a validation is good enough.
#pragma once

#include <string>

#include "lmx/config.h"

namespace lmx::train {

// "valid.nll_bit <= 2.11": one of valid.nll_nat, valid.nll_bit, valid.bpc, valid.ppl; <=, <, >= or >; a number.
class StopRule {
 public:
  // "": never. UserError at `mark` names what is wrong and what would be right.
  explicit StopRule(const std::string& text, const Mark& mark = {});
  // For a validation of this mean negative log-likelihood in nats.
  bool met(double nll_nat) const;
  std::string describe(double nll_nat) const;                    // "valid.nll_bit 2.1034 <= 2.11"
  bool of_characters() const { return metric_ == "valid.bpc"; }  // says nothing about words

 private:
  double value(double nll_nat) const;
  std::string text_, metric_, comparison_;
  double limit_ = 0;
};

}  // namespace lmx::train
