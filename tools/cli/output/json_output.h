// `--json` of commands: prints their results as one JSON value to stdout (docs/json.md).
#pragma once

#include "app/records/json_number.h"
#include "cli/command_line.h"

namespace lmx_cli {

// Adds the flag --json.
void add_json(Command command, bool& json);

// Prints a value. Bytes that are not UTF-8 become U+FFFD.
void print_json(const Json& value);

}  // namespace lmx_cli
