// Commands in the form in which users type them.
#pragma once

#include <string>

namespace lmx_cli {

// Returns the command with which the user calls lmx, for hints that can be copied: `lmx`, or the path with which
// tools/lmx was called.
std::string command_name();

// Quotes a word for a shell.
std::string shell_quoted(const std::string& word);

}  // namespace lmx_cli
