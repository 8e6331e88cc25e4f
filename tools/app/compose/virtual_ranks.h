// `--ranks N` of the commands that train.
#pragma once

#include <cstdint>
#include <string>

#include "app/compose/compose.h"

namespace lmx {

// Composes `recipe` with N virtual ranks instead of its `comm:`, as with comm=virtual comm.ranks=N; 0 leaves `comm:`
// unchanged. UserError: those of compose(), and an override that contradicts the setting of comm.
Node compose_on_ranks(const std::string& recipe, const ComposeOptions& options, int64_t ranks,
                      const RunNames& names = {});

}  // namespace lmx
