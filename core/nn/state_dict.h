// Parameters to named tensors and back.
#pragma once

#include <string>

#include "lmx/parameters.h"

namespace lmx::train {

// Copies a checkpoint's values into `params`. UserError naming the parameter and both shapes where they do not fit.
void load_parameters(ParameterStore& params, const StateDict& values, const std::string& from);
StateDict parameter_values(const ParameterStore& params);

// The entries of `all` whose names begin with `prefix`, without it; and the way back.
StateDict with_prefix(const StateDict& all, const std::string& prefix);
void add_with_prefix(StateDict& all, const std::string& prefix, const StateDict& part);

}  // namespace lmx::train
