// Where recipes are looked for beside the current folder.
#pragma once

#include "lmx/config.h"

namespace lmx_cli {

// Adds to `options` what lmx and its plugins say of recipes: the folders `recipes` beside plugins and, last, the
// recipes that lmx ships are on the search path, and `${key}` may refer to the default of a field. Call after the
// registry has been filled.
lmx::ComposeOptions with_plugins(lmx::ComposeOptions options);

}  // namespace lmx_cli
