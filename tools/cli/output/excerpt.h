// Shows the line that an error message refers to.
#pragma once

#include <string>

namespace lmx_cli {

// Returns `message` with excerpts. Below each line of the message that begins with FILE:LINE:COLUMN or "override '...':
// column N", it adds that line of the file, or the override, and a caret under the column. Other messages are returned
// unchanged.
std::string with_excerpts(const std::string& message);

}  // namespace lmx_cli
