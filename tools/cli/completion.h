// What the shell asks for when the user presses the tabulator, and the manual page: both from the tables of the
// commands.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace lmx_cli {

// What the last of `words` (the command line behind `lmx`) may become, one a line; ":files" asks for the names of
// files.
std::vector<std::string> completions(CLI::App& root, const std::vector<std::string>& words);

// The option that a word of the command line names: `--jobs`, `--jobs=2`, `-n`; null where there is none (frame.cc).
CLI::Option* find_option(CLI::App& app, const std::string& argument);

// A manual page in roff, from every command's --help.
std::string manual_page(CLI::App& root);

}  // namespace lmx_cli
