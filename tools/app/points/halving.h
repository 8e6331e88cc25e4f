// Successive halving (Jamieson and Talwalkar 2016): all configurations train for some steps, the better ones longer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/points/journal.h"

namespace lmx_cli::sweeps {

// Returns the step at which the next rung ends: min eta^k. Returns 0 if the remaining points run to their end: at most
// one configuration is left, min eta^k is not below their last step, or no halving was requested.
int64_t rung_step(const Plan& plan, const Journal& journal);

// Returns why the requested halving stops no point; "" if it may stop some, or if no halving was requested.
std::string why_no_rung(const Plan& plan);

// Returns the paused points that do not continue: all points except those of the best 1/eta (at least one) of the
// configurations with paused points. The value of a configuration is the mean over its seeds. A configuration with a
// point that failed or has no value is last.
std::vector<size_t> losers(const Plan& plan, const std::vector<State>& states);

}  // namespace lmx_cli::sweeps
