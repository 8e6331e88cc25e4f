// `--json` of commands: prints their results as one JSON value to stdout (docs/json.md).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "app/records/json_number.h"

namespace lmx_cli {

// Adds the flag --json.
void add_json(CLI::App& command, bool& json);

// Prints a value. Bytes that are not UTF-8 become U+FFFD.
void print_json(const Json& value);

}  // namespace lmx_cli
