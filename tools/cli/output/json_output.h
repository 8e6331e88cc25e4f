// `--json` of commands: prints their results as one JSON value to stdout (docs/json.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "app/records/records.h"
#include "app/translation/translate.h"
#include "cli/command_line.h"

namespace lmx::app::cli {

// Adds the flag --json.
void add_json(Command command, bool& json);

// Prints a value. Bytes that are not UTF-8 become U+FFFD.
void print_json(const Json& value);

// `lmx translate --json`: a TranslationWriter of one JSON object for each line (docs/json.md).
std::string translations_as_json(int64_t first, std::span<const std::string> lines,
                                 const std::vector<std::vector<Translation>>& found);

}  // namespace lmx::app::cli
