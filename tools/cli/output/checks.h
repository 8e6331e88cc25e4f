// Checks of option values that CLI11 lacks, or for which its message is not clear.
#pragma once

#include <CLI/CLI.hpp>

namespace lmx_cli {

// A number above 0. CLI11's own check prints the largest double in its message.
const CLI::Validator& positive();

}  // namespace lmx_cli
