// Successive halving (Jamieson and Talwalkar 2016): all configurations train a while, the better ones longer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/sweep/journal.h"

namespace lmx_cli::sweeps {

// The step at which the next rung ends: min eta^k; 0: what is left runs to its end, for there is nothing to choose, or
// no halving was asked for.
int64_t rung_step(const Plan& plan, const Journal& journal);

// Why the halving that was asked for stops nothing; "" where it may, or where none was asked for.
std::string why_no_rung(const Plan& plan);

// Paused points that do not go on: all but those of the best 1/eta, at least one, of the configurations that have
// paused points. A configuration counts as the mean over its seeds; one of which a point has come to a bad end comes
// last.
std::vector<size_t> losers(const Plan& plan, const std::vector<State>& states);

}  // namespace lmx_cli::sweeps
