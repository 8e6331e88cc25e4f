// Checks of options' values that CLI11 has not, or says badly.
#pragma once

#include <CLI/CLI.hpp>

namespace lmx_cli {

// A number above 0. CLI11's own tells what the largest double is.
const CLI::Validator& positive();

}  // namespace lmx_cli
