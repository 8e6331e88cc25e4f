// Any text as a run's tokens.
#pragma once

#include <string>
#include <vector>

#include "app/inference/run_text.h"

namespace lmx::train {

// The tokens of text files, prepared as a split of the run's own data is (of CSV and JSON lines `field`). Adds to what
// `text` counts. UserError: files that cannot be read, invalid UTF-8, fewer than 2 tokens.
TokenArray read_text(RunText& text, const std::vector<std::string>& patterns, const std::string& field);

}  // namespace lmx::train
