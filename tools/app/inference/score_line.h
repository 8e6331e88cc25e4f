// How `lmx score` writes the likelihood of one line.
#pragma once

#include <cstdint>
#include <string>

namespace lmx::train {

// `mean<TAB>sum<TAB>tokens` with six decimals, or with `json` an object with all digits and `line`, its number from 0:
// {"line":0,"mean":-2.5,"sum":-10.0,"tokens":4}. `sum` is the log-likelihood of the tokens in nats; -inf: not scored,
// `tokens` is 0.
std::string score_line(int64_t line, double sum, int64_t tokens, bool json);

}  // namespace lmx::train
