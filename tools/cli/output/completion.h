// Command-line completion for the shell, and the manual page. Both are generated from the tables of the commands.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace lmx_cli {

// Returns the completions of the last of `words` (the command line after `lmx`), one per line. ":files" requests file
// names.
std::vector<std::string> completions(CLI::App& root, const std::vector<std::string>& words);

// Returns the option that a word of the command line names: `--jobs`, `--jobs=2`, `-n`; null if there is none
// (frame.cc).
CLI::Option* find_option(CLI::App& app, const std::string& argument);

// Returns a manual page in roff, from every command's --help.
std::string manual_page(CLI::App& root);

}  // namespace lmx_cli
