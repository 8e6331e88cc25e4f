// `stop.when`: ends a run as soon as a validation reaches a limit.
#pragma once

#include <limits>
#include <string>

#include "lmx/config.h"

namespace lmx {

// "valid.nll_bit <= 2.11": one of valid.nll_nat, valid.nll_bit, valid.bpc, valid.bpb, valid.ppl; <=, <, >= or >; a
// number.
class StopRule {
 public:
  // "": never. A UserError at `mark` names the error and a valid alternative.
  explicit StopRule(const std::string& text, const Mark& mark = {});
  // The results of a validation: the mean negative log-likelihood in nats, and bits per byte (NaN: unknown).
  struct Result {
    double nll_nat = 0;
    double bpb = std::numeric_limits<double>::quiet_NaN();
  };
  bool met(const Result& result) const;                          // whether the result fulfils the condition
  std::string describe(const Result& result) const;              // "valid.nll_bit 2.1034 <= 2.11"
  bool of_characters() const { return metric_ == "valid.bpc"; }  // not defined for words
  bool of_bytes() const { return metric_ == "valid.bpb"; }       // defined for subwords of text

 private:
  double value(const Result& result) const;
  std::string text_, metric_, comparison_;
  double limit_ = 0;
};

}  // namespace lmx
