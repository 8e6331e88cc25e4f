// Finds recipes outside the current folder.
#pragma once

#include "app/compose/compose.h"
#include "lmx/config.h"

namespace lmx_cli {

// Adds the settings of lmx and its plugins to `options`: the search path gets the folders `recipes` beside plugins and,
// last, the recipes that lmx ships; `${key}` may refer to the default of a field. REQUIRES: the registry has been
// filled.
lmx::ComposeOptions with_plugins(lmx::ComposeOptions options);

}  // namespace lmx_cli
