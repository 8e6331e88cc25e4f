// The output format of `lmx score` for the likelihood of one line.
#pragma once

#include <cstdint>
#include <string>

namespace lmx::train {

// Returns `mean<TAB>sum<TAB>tokens` with six decimals. With `json`, returns an object with all digits and `line`, which
// counts from 0: {"line":0,"mean":-2.5,"sum":-10.0,"tokens":4}. `sum` is the log-likelihood of the tokens in nats. A
// line that is not scored has `sum` -inf and 0 tokens.
std::string score_line(int64_t line, double sum, int64_t tokens, bool json);

}  // namespace lmx::train
