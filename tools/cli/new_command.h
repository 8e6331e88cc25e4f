// lmx new
#pragma once

#include <CLI/CLI.hpp>

namespace lmx_cli {

void add_new(CLI::App& app);

}  // namespace lmx_cli
