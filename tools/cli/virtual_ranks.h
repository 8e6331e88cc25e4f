// `--ranks N` of lmx run and lmx config.
#pragma once

#include <cstdint>
#include <string>

#include "lmx/config.h"

namespace lmx_cli {

// Composes `recipe` with N virtual ranks in the place of `comm:`, as comm=virtual comm.ranks=N would; 0 leaves `comm:`
// unchanged. UserError: those of lmx::compose(), and an override that says something else about comm.
lmx::Node compose_on_ranks(const std::string& recipe, const lmx::ComposeOptions& options, int64_t ranks);

}  // namespace lmx_cli
