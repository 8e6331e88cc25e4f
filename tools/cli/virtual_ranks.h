// `--ranks N` of lmx run and lmx config.
#pragma once

#include <cstdint>
#include <string>

#include "app/compose/compose.h"
#include "lmx/config.h"

namespace lmx_cli {

// Composes `recipe` with N virtual ranks instead of its `comm:`, as with comm=virtual comm.ranks=N; 0 leaves `comm:`
// unchanged. UserError: those of lmx::compose(), and an override that contradicts the setting of comm.
lmx::Node compose_on_ranks(const std::string& recipe, const lmx::ComposeOptions& options, int64_t ranks);

}  // namespace lmx_cli
