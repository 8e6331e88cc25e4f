// The line that an error message speaks of.
#pragma once

#include <string>

namespace lmx_cli {

// `message` with, below each of its lines that begins with FILE:LINE:COLUMN or "override '...': column N", that line of
// the file or the override and a caret under the column. Other messages come back as they are.
std::string with_excerpts(const std::string& message);

}  // namespace lmx_cli
