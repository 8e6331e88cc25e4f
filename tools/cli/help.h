// How `--help` looks.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

namespace lmx_cli {

// Examples first, lines as wide as the terminal, words whole, headings bold where the terminal has colours.
std::shared_ptr<CLI::FormatterBase> help_formatter();

}  // namespace lmx_cli
