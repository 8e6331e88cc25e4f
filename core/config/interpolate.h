// `${...}`: references to other values and resolvers such as oc.env.
#pragma once

#include "lmx/config.h"

namespace lmx::config {

// The tree with every interpolation replaced. UserError: unknown name, cycle, reference to `???`, broken syntax.
Node resolve_interpolations(const Node& root);

}  // namespace lmx::config
