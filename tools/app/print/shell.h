// Commands as a user types them.
#pragma once

#include <string>

namespace lmx_cli {

// How a user calls lmx, for hints that can be copied: `lmx`, or what tools/lmx was called as.
std::string command_name();

// A word as a shell reads it back.
std::string shell_quoted(const std::string& word);

}  // namespace lmx_cli
