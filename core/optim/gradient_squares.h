// The squares of all gradients.
#pragma once

#include <map>
#include <string>

#include "lmx/parameters.h"

namespace lmx::optim {

// The sum of the squares of each gradient by the name of its parameter, accumulated in double. It is not finite if the
// gradient has an Inf or NaN. Parameters without a gradient are left out. Gradients must be coalesced. The host reads
// all sums at once.
std::map<std::string, double> gradient_squares(Context& ctx, const ParameterStore& params);

}  // namespace lmx::optim
