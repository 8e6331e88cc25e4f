// Command-line completion for the shell, and the manual page. Both are generated from the tables of the commands.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/commands.h"

namespace lmx::app::cli {

// Returns the completions of the last of `words` (the command line after `lmx`), one per line. ":files" requests file
// names.
std::vector<std::string> completions(Command root, const std::vector<std::string>& words);

// Returns a manual page in roff, from every command's --help.
std::string manual_page(Command root);

}  // namespace lmx::app::cli
