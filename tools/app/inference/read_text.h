// Any text, converted into tokens of a run.
#pragma once

#include <string>
#include <vector>

#include "app/inference/run_text.h"

namespace lmx::train {

// Returns the tokens of text files, prepared like a split of the run's own data. `field` names the column or field of
// CSV and JSON-lines files. Adds to the counts of `text`. UserError: files that cannot be read, invalid UTF-8, fewer
// than 2 tokens.
TokenArray read_text(RunText& text, const std::vector<std::string>& patterns, const std::string& field);

}  // namespace lmx::train
