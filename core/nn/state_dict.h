// Converts parameters to named tensors, and back.
#pragma once

#include <string>
#include <vector>

#include "lmx/parameters.h"

namespace lmx {

// The names of `specs`, in their order.
std::vector<std::string> names_of(const std::vector<ParameterSpec>& specs);

// Copies a checkpoint's values into `params`. UserError with the parameter and both shapes if they do not match.
void load_parameters(ParameterStore& params, const StateDict& values, const std::string& from);
StateDict parameter_values(const ParameterStore& params);

// with_prefix(): the entries of `all` whose names begin with `prefix`, without the prefix. add_with_prefix(): the
// inverse.
StateDict with_prefix(const StateDict& all, const std::string& prefix);
void add_with_prefix(StateDict& all, const std::string& prefix, const StateDict& part);

}  // namespace lmx
